package web

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strconv"
)

// The page is a client of the API beside it: files that are served as they are here. It holds no data, and is behind the
// same login all the same.
//
//go:embed page
var assets embed.FS

// pagePolicy lets the page load its own files and ask its own origin. Nothing else: no inline script or style, no form
// to elsewhere, no frame around it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// pageFiles are what serves the page, by path: / and what it loads.
func pageFiles() (map[string]http.HandlerFunc, error) {
	files := map[string]http.HandlerFunc{}
	err := fs.WalkDir(assets, "page", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		at := "/" + name
		if name == "page/index.html" {
			at = "/{$}"
		}
		files[at] = asset(contentTypes[path.Ext(name)], content)
		return nil
	})
	return files, err
}

// asset is requested again each time, so that the page is of the release that answers, and sent only when it has changed.
func asset(kind string, content []byte) http.HandlerFunc {
	tag := tagOf(content)
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("ETag", tag)
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		secure(h)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Type", kind)
		h.Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content) // who asked has gone or not
	}
}
