package driver

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

var inlineHandle = "csi-" + strings.Repeat("0123456789abcdef", 4)

func TestInlineVolume_HandleOfTheKubeletIsRecognized(t *testing.T) {
	id, ephemeral, err := parseHandle(inlineHandle)
	if err != nil || !ephemeral {
		t.Fatalf("got %s, %t, %v", id, ephemeral, err)
	}
	if want, _ := backend.IDFor(inlineHandle); id != want {
		t.Errorf("id is %s, want %s", id, want)
	}
	for _, s := range []string{inlineHandle[:67], inlineHandle + "0", strings.ToUpper(inlineHandle), "csi-" + strings.Repeat("g", 64), "\n" + inlineHandle, inlineHandle + "\n"} {
		if id, ephemeral, err := parseHandle(s); ephemeral {
			t.Errorf("parseHandle(%q) = %s, %t, %v", s, id, ephemeral, err)
		}
	}
}

func TestInlineVolume_AttributesOfThePodBecomeASpec(t *testing.T) {
	req := &csi.NodePublishVolumeRequest{VolumeId: inlineHandle, VolumeContext: map[string]string{
		"size": "2Gi", "pool": "fast", "fsType": "xfs", "provisioning": "thick", "inodes": "100",
		ephemeralKey: "true", reserved + "pod.name": "web-0", reserved + "pod.namespace": "shop", reserved + "pod.uid": "11",
		reserved + "serviceAccount.name": "default", reserved + "serviceAccount.tokens": marker,
	}}
	spec, err := ephemeralSpec(req, access{mode: backend.Filesystem, fsType: "xfs"})
	check.OK(t, err)
	labels := map[string]string{ephemeralKey: "true", reserved + "pod.name": "web-0", reserved + "pod.namespace": "shop", reserved + "pod.uid": "11"}
	if spec.Name != inlineHandle || spec.Size.Required != 2*gib || spec.Pool != "fast" || spec.FSType != "xfs" || spec.Mode != backend.Filesystem ||
		spec.Provisioning != backend.Thick || spec.Inodes != 100 || !maps.Equal(spec.Labels, labels) {
		t.Errorf("got %+v", spec)
	}
	_, err = ephemeralSpec(req, access{mode: backend.Filesystem, fsType: "ext4"})
	if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "ext4") || !strings.Contains(err.Error(), "xfs") {
		t.Errorf("fsType against the capability: %v", err)
	}
	for _, key := range []string{"Size", "mkfsOptions", "secret/" + marker} {
		_, err := ephemeralSpec(&csi.NodePublishVolumeRequest{VolumeContext: map[string]string{key: marker}}, access{})
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), backend.Quote(key)) || strings.Contains(strings.ReplaceAll(err.Error(), key, ""), marker) {
			t.Errorf("attribute %s: %v", key, err)
		}
	}
}

func TestInlineVolume_OfABlockDeviceIsRefused(t *testing.T) {
	n := &node{}
	err := n.publishEphemeral(t.Context(), backend.ID(inlineHandle), access{mode: backend.Block}, &csi.NodePublishVolumeRequest{})
	if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "generic ephemeral volume") {
		t.Errorf("got %v", err)
	}
}

func TestInlineVolume_OnlyVolumesOfAPodAreDeletedWithIt(t *testing.T) {
	for name, test := range map[string]struct {
		volume *backend.Volume
		gone   bool
	}{
		"made for a pod":          {&backend.Volume{Labels: map[string]string{ephemeralKey: "true"}}, true},
		"damaged beyond reading":  {&backend.Volume{Condition: backend.Condition{Abnormal: true}}, true},
		"another's":               {&backend.Volume{}, false},
		"another's, and damaged":  {&backend.Volume{Labels: map[string]string{"a": "b"}, Condition: backend.Condition{Abnormal: true}}, false},
		"gone already":            {nil, true},
		"a pool that is away now": {&backend.Volume{ID: "away"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newScripted()
			check.Got(b.Memory.Create(t.Context(), backend.VolumeSpec{Name: "v"}))(t)
			b.get = func(backend.ID) (*backend.Volume, error) {
				switch {
				case test.volume == nil:
					return nil, backend.ErrNotFound
				case test.volume.ID == "away":
					return nil, errors.Join(backend.ErrNotFound, backend.ErrUnavailable)
				}
				return test.volume, nil
			}
			n := &node{Driver: &Driver{Config: Config{Backend: b, Patience: DefaultPatience}}}
			err := n.deleteEphemeral(t.Context(), "v")
			if wantErr := test.volume != nil && test.volume.ID == "away"; wantErr != errors.Is(err, backend.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			_, err = b.Memory.Get(t.Context(), "v")
			if gone := errors.Is(err, backend.ErrNotFound); test.volume != nil && gone != test.gone {
				t.Errorf("gone: %t", gone)
			}
		})
	}
}
