package upgrade

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/test/e2e/kube"
)

// anotherVersion is what this release calls itself where there is no earlier one that could be gone back to.
const anotherVersion = "earlier"

// earlier is the image of the commit before this one, on every node, as is that of its NFS servers. Where the sources are
// no repository, or nothing is before this commit, it is this one under the name of another version.
func (s *site) earlier() v1.Image {
	s.t.Helper()
	image, err := loadEarlier()
	if err != nil {
		s.t.Fatalf("the image of an earlier release: %v", err)
	}
	if image == s.image {
		s.t.Fatalf("the earlier release and this one have the same image %s", image)
	}
	return image
}

var loadEarlier = sync.OnceValues(func() (v1.Image, error) {
	ctx := context.Background()
	sources, version, err := earlierSources(ctx)
	if err != nil {
		return "", err
	}
	image, err := cluster.LoadRelease(ctx, sources, version)
	return v1.Image(image), err
})

// earlierSources are the sources of the earlier release, and what it calls itself.
func earlierSources(ctx context.Context) (dir, version string, err error) {
	commit, err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "--short=12", "HEAD~1").Output()
	if err != nil {
		return root, anotherVersion, nil //nolint:nilerr // there is no repository, or nothing earlier in it
	}
	dir, version = filepath.Join(scratch, "earlier"), strings.TrimSpace(string(commit))
	if err := kube.Sources(ctx, root, version, dir); err != nil {
		return "", "", err
	}
	if is, was := metadataVersion(root), metadataVersion(dir); is == "" || is != was {
		return "", "", fmt.Errorf("pools have version %q at %s, and %q here: give a release that can read them", was, version, is)
	}
	return dir, version, nil
}

var metadata = regexp.MustCompile(`(?m)^const version = (\d+)$`)

// metadataVersion is that of what a release writes into pools; nothing if it does not say.
func metadataVersion(sources string) string {
	text, _ := os.ReadFile(filepath.Join(sources, "backend/local/meta.go"))
	if found := metadata.FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return ""
}

// broken is an image whose nodes do not work, on every node.
func (s *site) broken(how string) v1.Image {
	s.t.Helper()
	image := "holdfast.test/broken:" + how
	program, archive := filepath.Join(scratch, "broken"), filepath.Join(scratch, how+".tar")
	build := exec.CommandContext(s.t.Context(), "go", "build", "-o", program, "./broken")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		s.t.Fatalf("./broken: %v: %s", err, out)
	}
	if err := writeImage(archive, image, program, "BROKEN="+how); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Do(s.t.Context(), "load-image", archive); err != nil {
		s.t.Fatal(err)
	}
	return v1.Image(image)
}

// writeImage writes an archive of an image that is one program, as docker save does.
func writeImage(archive, name, program, variable string) (err error) {
	layer := program + ".layer"
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := writeTar(layer, file{"program", 0o755, content}); err != nil {
		return err
	}
	packed, err := os.ReadFile(layer)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/program"}, "Env": []string{variable}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(packed))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	return writeTar(archive, file{"manifest.json", 0o644, manifest}, file{"config.json", 0o644, config}, file{"layer.tar", 0o644, packed})
}

type file struct {
	name    string
	mode    int64
	content []byte
}

func writeTar(path string, files ...file) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	for _, f := range files {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}))
		_, failed := w.Write(f.content)
		err = errors.Join(err, failed)
	}
	return errors.Join(err, w.Close(), out.Close())
}
