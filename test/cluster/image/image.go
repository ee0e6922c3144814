// Package image writes container images from files, for what needs neither a Dockerfile nor a registry.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
)

// Image is one layer of files and how to run them.
type Image struct {
	Name       string // with registry and tag
	Files      []File
	Env        []string
	Entrypoint []string
	Cmd        []string
}

// File is one entry of the layer: a copy of the host's file Source, a link to Link, or a directory.
type File struct {
	Path   string // without a leading slash
	Mode   int64
	Source string
	Link   string
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const mediaTypes = "application/vnd.oci.image."

// Write writes the image as an OCI layout in a tar stream. The same image gives the same bytes.
func (i Image) Write(w io.Writer) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	a := archive{tar.NewWriter(w)}
	layerAt := a.blob("layer.v1.tar", layer)
	config := map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": i.Env, "Entrypoint": i.Entrypoint, "Cmd": i.Cmd},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerAt.Digest}},
	}
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": mediaTypes + "manifest.v1+json",
		"config": a.json("config.v1+json", config),
		"layers": []descriptor{layerAt},
	}
	manifestAt := a.json("manifest.v1+json", manifest)
	manifestAt.Annotations = map[string]string{"io.containerd.image.name": i.Name}
	a.file("index.json", marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifestAt}}))
	a.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	// A tar writer keeps its first error until Close.
	return a.tar.Close()
}

func (i Image) layer() ([]byte, error) {
	var buffer bytes.Buffer
	a := archive{tar.NewWriter(&buffer)}
	made := map[string]bool{".": true}
	for _, f := range i.Files {
		a.parents(path.Dir(f.Path), made)
		if f.Source == "" && f.Link == "" {
			made[f.Path] = true
			a.header(tar.Header{Typeflag: tar.TypeDir, Name: f.Path + "/", Mode: f.Mode})
			continue
		}
		if f.Link != "" {
			a.header(tar.Header{Typeflag: tar.TypeSymlink, Name: f.Path, Linkname: f.Link, Mode: 0o777})
			continue
		}
		data, err := os.ReadFile(f.Source)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", i.Name, err)
		}
		a.header(tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: f.Mode, Size: int64(len(data))})
		_, _ = a.tar.Write(data)
	}
	err := a.tar.Close()
	return buffer.Bytes(), err
}

// archive leaves errors to the tar writer, which repeats its first one on Close.
type archive struct{ tar *tar.Writer }

func (a archive) header(h tar.Header) { _ = a.tar.WriteHeader(&h) }

func (a archive) file(name string, data []byte) {
	a.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))})
	_, _ = a.tar.Write(data)
}

func (a archive) blob(kind string, data []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	a.file("blobs/sha256/"+sum, data)
	return descriptor{MediaType: mediaTypes + kind, Digest: "sha256:" + sum, Size: len(data)}
}

func (a archive) json(kind string, v any) descriptor { return a.blob(kind, marshal(v)) }

func (a archive) parents(dir string, made map[string]bool) {
	var missing []string
	for ; !made[dir]; dir = path.Dir(dir) {
		missing = append(missing, dir)
		made[dir] = true
	}
	for _, d := range slices.Backward(missing) {
		a.header(tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755})
	}
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers always marshal
	}
	return data
}
