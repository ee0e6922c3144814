package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func (e *events) Event(o runtime.Object, kind, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := ""
	if m, ok := o.(interface{ GetName() string }); ok {
		name = m.GetName()
	}
	e.all = append(e.all, fmt.Sprintf("%s %s %s: %s", name, kind, reason, message))
}

// with returns the events that contain all words.
func (e *events) with(words ...string) (found []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
next:
	for _, line := range e.all {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

func decode(t *testing.T, text []byte) (all []*unstructured.Unstructured) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return all
		}
		check.OK(t, err)
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}
