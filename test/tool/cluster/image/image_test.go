package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func entries(t *testing.T, r io.Reader) (map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	headers, contents := map[string]*tar.Header{}, map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		if headers[h.Name] != nil {
			t.Errorf("%s is there twice", h.Name)
		}
		if contents[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
		headers[h.Name] = h
	}
}

func busybox(t *testing.T) Image {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Busybox(program, "busybox\nls\nsh\n", program)
}

func TestImage_EveryBlobIsFoundByItsDigest(t *testing.T) {
	var archive bytes.Buffer
	if err := busybox(t).Write(&archive); err != nil {
		t.Fatal(err)
	}
	_, contents := entries(t, &archive)
	blob := func(d descriptor) []byte {
		data := contents["blobs/sha256/"+d.Digest[len("sha256:"):]]
		if len(data) != d.Size || fmt.Sprintf("sha256:%x", sha256.Sum256(data)) != d.Digest {
			t.Errorf("the blob of %v is not what it says", d)
		}
		return data
	}
	var index, manifest struct {
		Manifests, Layers []descriptor
		Config            descriptor
	}
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(t, contents["index.json"], &index)
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != BusyboxName {
		t.Errorf("the image is named %q", name)
	}
	decode(t, blob(index.Manifests[0]), &manifest)
	decode(t, blob(manifest.Config), &config)
	blob(manifest.Layers[0])
	if config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Error("the configuration names another layer")
	}
}

func decode(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

func TestLayer_HasParentsBeforeChildrenAndNoLinkToItself(t *testing.T) {
	layer, err := busybox(t).layer()
	if err != nil {
		t.Fatal(err)
	}
	headers, contents := entries(t, bytes.NewReader(layer))
	if string(contents["bin/busybox"]) != "#!" || headers["bin/busybox"].Mode != 0o755 {
		t.Errorf("the program is %v", headers["bin/busybox"])
	}
	if l := headers["bin/ls"]; l == nil || l.Linkname != "/bin/busybox" {
		t.Errorf("the applet is %v", l)
	}
	if headers["bin/"] == nil || headers["tmp/"].Mode != 0o1777 {
		t.Errorf("directories: %v, %v", headers["bin/"], headers["tmp/"])
	}
}

func TestImage_SameInputGivesTheSameBytes(t *testing.T) {
	i := busybox(t)
	var a, b bytes.Buffer
	if err := i.Write(&a); err != nil {
		t.Fatal(err)
	}
	if err := i.Write(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the bytes differ")
	}
}

func TestImage_MissingFileIsNamed(t *testing.T) {
	if err := Pause("/no/such/program").Write(io.Discard); err == nil {
		t.Error("an image without its program was written")
	}
}
