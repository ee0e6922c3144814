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

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// anotherVersion is what this release calls itself where there is no earlier one that could be gone back to.
const anotherVersion = "earlier"

// earlier is the image of the commit before this one, on every node, as is that of its NFS servers. Where the sources are
// no repository, nothing is before this commit, or the kinds had fields then that they do not have now, it is this one
// under the name of another version.
func (s *site) earlier() v1beta1.Image {
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

var loadEarlier = sync.OnceValues(func() (v1beta1.Image, error) {
	ctx := context.Background()
	sources, version, err := earlierSources(ctx)
	if err != nil {
		return "", err
	}
	image, err := cluster.LoadRelease(ctx, sources, version)
	return v1beta1.Image(image), err
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
	if lost, err := lostFields(dir, root); err != nil || len(lost) > 0 {
		return root, anotherVersion, err
	}
	if is, was := metadataVersion(root), metadataVersion(dir); is == "" || is != was {
		return "", "", fmt.Errorf("pools have version %q at %s, and %q here: give a release that can read them", was, version, is)
	}
	return dir, version, nil
}

// lostFields are the fields of the kinds, by version, that an earlier release has and a later one does not.
func lostFields(earlier, later string) (lost []string, err error) {
	before, err := fieldsOfKinds(earlier)
	if err != nil {
		return nil, err
	}
	after, err := fieldsOfKinds(later)
	for field := range before {
		if !after.Has(field) {
			lost = append(lost, field)
		}
	}
	return lost, err
}

func fieldsOfKinds(sources string) (sets.Set[string], error) {
	files, err := filepath.Glob(filepath.Join(sources, "deploy/crds/holdfast.dev_*.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no kinds in deploy/crds", sources)
	}
	if err != nil {
		return nil, err
	}
	fields := sets.New[string]()
	for _, file := range files {
		var kind struct {
			Metadata struct{ Name string }
			Spec     struct {
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema schema }
				}
			}
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, version := range kind.Spec.Versions {
			addFields(fields, kind.Metadata.Name+"/"+version.Name, version.Schema.OpenAPIV3Schema)
		}
	}
	return fields, nil
}

type schema struct {
	Properties map[string]schema
	Items      *schema
}

func addFields(fields sets.Set[string], path string, of schema) {
	for name, property := range of.Properties {
		fields.Insert(path + "." + name)
		addFields(fields, path+"."+name, property)
	}
	if of.Items != nil {
		addFields(fields, path+"[]", *of.Items)
	}
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
func (s *site) broken() v1beta1.Image {
	s.t.Helper()
	const image = "holdfast.test/broken:v1"
	program, archive := filepath.Join(scratch, "broken"), filepath.Join(scratch, "broken.tar")
	build := exec.CommandContext(s.t.Context(), "go", "build", "-o", program, "./broken")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		s.t.Fatalf("./broken: %v: %s", err, out)
	}
	check.OK(s.t, writeImage(archive, image, program))
	check.Got(s.Do(s.t.Context(), "load-image", archive))(s.t)
	return image
}

// writeImage writes an archive of an image that is one program, as docker save does.
func writeImage(archive, name, program string) error {
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
		"config": map[string]any{"Entrypoint": []string{"/program"}},
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
