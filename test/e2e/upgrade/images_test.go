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
)

// anotherVersion is what this release calls itself where there is no earlier one that could be gone back to.
const anotherVersion = "earlier"

// earlier is the image of the commit before this one, on every node, as is that of its NFS servers. Where the sources are no repository, or that commit
// has no upgrades or cannot read what this one writes, it is this one under the name of another version.
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

var loadEarlier = sync.OnceValues(func() (image v1.Image, err error) {
	ctx := context.Background()
	sources, version, err := earlierSources(ctx)
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, filepath.Join(sources, "images/build"), "holdfast", "nfs") // servers are upgraded as well
	build.Env, build.Stderr = append(os.Environ(), "VERSION="+version), os.Stderr
	out, err := build.Output()
	if err != nil {
		return "", err
	}
	load := []string{"load-image"}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return "", fmt.Errorf("images/build printed %q, not a name, a reference and an archive", line)
		}
		if load = append(load, words[2]); words[0] == "holdfast" {
			image = v1.Image(words[1])
		}
	}
	_, err = cluster.Do(ctx, load...)
	return image, err
})

// earlierSources are the sources of the earlier release, and what it calls itself.
func earlierSources(ctx context.Context) (dir, version string, err error) {
	commit, err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "--short=12", "HEAD~1").Output()
	if err != nil {
		return root, anotherVersion, nil //nolint:nilerr // there is no repository, or nothing earlier in it
	}
	dir = filepath.Join(scratch, "earlier")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", "", err
	}
	version = strings.TrimSpace(string(commit))
	pack := exec.CommandContext(ctx, "sh", "-ec", `git -C "$1" archive "$2" | tar -x -C "$3"`, "sh", root, version, dir)
	if out, err := pack.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("the sources of %s: %w: %s", version, err, out)
	}
	if !upgrades(dir) || metadataVersion(dir) != metadataVersion(root) {
		return root, anotherVersion, nil
	}
	return dir, version, nil
}

// upgrades says whether a release knows StorageUpgrade.
func upgrades(sources string) bool {
	_, err := os.Stat(filepath.Join(sources, "operator/storageupgrade/controller.go"))
	return err == nil
}

var metadata = regexp.MustCompile(`\bMetadataVersion\s*=\s*(\d+)`)

// metadataVersion is that of what a release writes into pools; nothing if it does not say.
func metadataVersion(sources string) string {
	files, _ := filepath.Glob(filepath.Join(sources, "backend/local/*.go")) // the pattern is good
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if found := metadata.FindSubmatch(text); found != nil {
			return string(found[1])
		}
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
