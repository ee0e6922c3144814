package web

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
)

// The page is a client of the API: files that are served as they are. It holds no data, and needs the same password.
//
//go:embed page
var assets embed.FS

// pagePolicy lets the page load its own files and ask its own origin. Nothing else: no inline script or style, no form
// to elsewhere, no frame around it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// pageFiles returns the handlers of the page by path: / and what it loads.
func pageFiles() (map[string]http.HandlerFunc, error) {
	names, err := fs.Glob(assets, "page/*.*")
	files := map[string]http.HandlerFunc{}
	for _, name := range names {
		content, err := assets.ReadFile(name)
		if err != nil {
			return nil, err
		}
		at := "/" + name
		if name == "page/index.html" {
			at = "/{$}"
		}
		files[at] = asset(contentTypes[path.Ext(name)], content)
	}
	return files, err
}

// asset returns a handler for a file. Browsers ask for it again each time, so that the page is of the release that answers.
func asset(kind string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Content-Security-Policy", pagePolicy)
		w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
		serve(w, r, kind, content)
	}
}
