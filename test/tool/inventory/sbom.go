package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The part of CycloneDX 1.6 that is written.
type (
	document struct {
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Serial       string       `json:"serialNumber,omitempty"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type     string    `json:"type"`
		Ref      string    `json:"bom-ref"`
		Name     string    `json:"name"`
		Version  string    `json:"version"`
		Hashes   []hash    `json:"hashes,omitempty"`
		Licences []licence `json:"licenses,omitempty"`
		PURL     string    `json:"purl,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	licence struct {
		Licence struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	dependency struct {
		Ref string   `json:"ref"`
		On  []string `json:"dependsOn"`
	}
)

// sbom collects what a release has. All is in the order of its references, so that the same release has the same document.
type sbom struct {
	version, dir string
	components   map[string]component
	on           map[string][]string
}

// writeSBOM describes each program, with the modules linked into it, and each image, with its program and its packages.
func writeSBOM(version, seconds, dir string, out io.Writer) error {
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	s := sbom{version, dir, map[string]component{}, map[string][]string{}}
	root := component{Type: "application", Ref: "holdfast", Name: "holdfast", Version: version, Licences: licences("Apache-2.0")}
	// The images of each program: one is built with Ceph's libraries.
	for name, images := range map[string][]string{"holdfast": {"holdfast", "nfs"}, "ceph": {"ceph"}} {
		programs, err := filepath.Glob(filepath.Join(dir, name+"-"+version+"-linux-*"))
		if err != nil {
			return err
		}
		for _, file := range programs {
			if err := s.withImages(root.Ref, name, file, images); err != nil {
				return err
			}
		}
	}
	return s.write(metadata{time.Unix(at, 0).UTC().Format(time.RFC3339), root}, out)
}

// withImages adds a program of an architecture, and the images that have it.
func (s *sbom) withImages(root, name, file string, images []string) error {
	arch := file[strings.LastIndex(file, "-")+1:]
	program, err := s.program(file, name+"-linux-"+arch)
	if err != nil {
		return err
	}
	s.on[root] = append(s.on[root], program)
	for _, name := range images {
		image, err := s.image(name, arch)
		if err != nil {
			return err
		}
		s.on[root], s.on[image] = append(s.on[root], image), append(s.on[image], program)
	}
	return nil
}

// add returns the reference of a component.
func (s *sbom) add(c component) string {
	if c.Ref == "" {
		c.Ref = c.PURL
	}
	s.components[c.Ref] = c
	return c.Ref
}

func (s *sbom) program(file, name string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	modules, err := modulesOf(file)
	if err != nil {
		return "", err
	}
	ref := s.add(component{
		Type: "application", Ref: name, Name: name, Version: s.version, Licences: licences("Apache-2.0"),
		Hashes: []hash{{"SHA-256", fmt.Sprintf("%x", sha256.Sum256(content))}},
	})
	for _, m := range modules {
		s.on[ref] = append(s.on[ref], s.add(component{
			Type: "library", Name: m.path, Version: m.version, Licences: licences(m.licences...), PURL: "pkg:golang/" + m.path + "@" + url.PathEscape(m.version),
		}))
	}
	return ref, nil
}

// image reads the control files of the packages of which there is something in the image.
func (s *sbom) image(name, arch string) (string, error) {
	ref := s.add(component{Type: "container", Ref: "image-" + name + "-" + arch, Name: "docker.io/holdfast/" + name, Version: s.version})
	files, err := filepath.Glob(filepath.Join(s.dir, "packages-"+name+"-"+arch, "*"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("%s has no packages of the image %s for %s", s.dir, name, arch)
	}
	for _, file := range files {
		control, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		field := map[string]string{}
		for line := range strings.Lines(string(control)) {
			key, value, _ := strings.Cut(line, ": ")
			field[key] = strings.TrimSpace(value)
		}
		s.on[ref] = append(s.on[ref], s.add(component{
			Type: "library", Name: field["Package"], Version: field["Version"],
			PURL: fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=debian-12", url.PathEscape(field["Package"]), url.QueryEscape(field["Version"]), field["Architecture"]),
		}))
	}
	return ref, nil
}

// write gives the document a number that follows from what it says.
func (s *sbom) write(about metadata, out io.Writer) error {
	d := document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: about}
	for _, ref := range slices.Sorted(maps.Keys(s.components)) {
		d.Components = append(d.Components, s.components[ref])
	}
	for _, ref := range slices.Sorted(maps.Keys(s.on)) {
		slices.Sort(s.on[ref])
		d.Dependencies = append(d.Dependencies, dependency{ref, s.on[ref]})
	}
	unnumbered, err := json.Marshal(d)
	if err != nil {
		return err
	}
	id := sha256.Sum256(unnumbered)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	d.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(d)
}

func licences(ids ...string) []licence {
	list := make([]licence, len(ids))
	for i, id := range ids {
		list[i].Licence.ID = id
	}
	return list
}
