package page

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// axe-core is published for npm alone. It is one file, so the package is read without npm; its digest is that of npm's
// registry, so it does not matter who serves it. Only this test runs it.
const (
	axePackage = "axe-core/-/axe-core-4.14.1.tgz"
	axeDigest  = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
	axeFile    = "package/axe.min.js"
	registry   = "https://registry.npmjs.org/"
)

var axe = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	kept := filepath.Join(cache, "holdfast", filepath.Base(axePackage))
	archive, err := os.ReadFile(kept)
	if err != nil || !isAxe(archive) { // which half a file is not, that another run is writing
		if archive, err = download(); err != nil {
			return "", err
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), os.WriteFile(kept, archive, 0o600)); err != nil {
			return "", err
		}
	}
	return unpack(archive)
})

func isAxe(archive []byte) bool {
	sum := sha512.Sum512(archive)
	return base64.StdEncoding.EncodeToString(sum[:]) == axeDigest
}

// download is from the registry that npm is configured for.
func download() ([]byte, error) {
	base := os.Getenv("npm_config_registry")
	if base == "" {
		base = registry
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/"+axePackage, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", request.URL, response.Status)
	}
	archive, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err == nil && !isAxe(archive) {
		err = fmt.Errorf("%s is not the package that was reviewed: its digest differs", request.URL)
	}
	return archive, err
}

func unpack(archive []byte) (string, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return "", err
	}
	files := tar.NewReader(zipped)
	for {
		h, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("%s: %w", axeFile, err)
		}
		if h.Name == axeFile {
			text, err := io.ReadAll(files)
			return string(text), err
		}
	}
}

// accessible runs axe on what is shown: the rules of WCAG 2.2 AA and the best practices, with contrasts. Of many rows that are alike it sees five.
func (p *tab) accessible(where string) {
	p.Helper()
	script, err := axe()
	if err != nil {
		hostfs.Skip(p, "axe", fmt.Sprintf("needs axe-core of npm: %v", err))
	}
	if !run[bool](p, "typeof window.axe === 'object'") {
		run[any](p, script+"\n;undefined")
	}
	type violation struct {
		ID, Help string
		Nodes    []struct{ HTML, FailureSummary string }
	}
	found := run[struct {
		Violations []violation
		Passes     int
	}](p, `axe.run({exclude: [['tbody tr:nth-child(n+6)'], ['.lines > li:nth-child(n+6)']]}, {resultTypes: ['violations']}).then((r) => ({violations: r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => ({html: n.html, failureSummary: n.failureSummary}))})), passes: r.passes.length}))`)
	if found.Passes < 15 {
		p.Errorf("%s: axe has checked only %d rules", where, found.Passes)
	}
	for _, v := range found.Violations {
		for _, n := range v.Nodes {
			p.Errorf("%s: %s: %s\n%.300s\n%s", where, v.ID, v.Help, n.HTML, n.FailureSummary)
		}
	}
}
