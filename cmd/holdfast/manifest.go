package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// maxManifest is the most that the API server accepts as one object.
const maxManifest = 3 << 20

// readManifest reads the one document that a file has; - is the standard input.
func readManifest(path string) (map[string]any, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	data, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(data) > maxManifest {
		return nil, fmt.Errorf("%s has more than %d bytes, which no API server takes", path, maxManifest)
	}
	var found map[string]any
	var kinds []any
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var one any
		if err := yaml.UnmarshalStrict(document, &one); err != nil {
			return nil, fmt.Errorf("%s is no YAML that can be read: %w", path, err)
		}
		if one == nil {
			continue // comments alone
		}
		fields, ok := one.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s has no object, but %.80v", path, one)
		}
		found = fields
		kinds = append(kinds, fields["kind"])
	}
	if len(kinds) != 1 {
		return nil, fmt.Errorf("%s has %d documents %v; it must have one", path, len(kinds), kinds)
	}
	return found, nil
}

// readKind reads the object of one kind that a file has, and refuses fields that the kind does not have.
func readKind[T any](path, version, kind string) (*T, error) {
	manifest, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	if manifest["kind"] != kind || manifest["apiVersion"] != version {
		return nil, fmt.Errorf("%s has a %v of %v; it must be a %s of %s", path, manifest["kind"], manifest["apiVersion"], kind, version)
	}
	// The first reader names a field of the wrong type, the second one that is not known.
	data, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, new(T)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(manifest, into, true); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return into, nil
}
