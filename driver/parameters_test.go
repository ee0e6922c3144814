package driver

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/parameters"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestParameters_BecomeASpec(t *testing.T) {
	spec := check.Got(parseParameters(map[string]string{
		"pool": "fast", "provisioning": "thick", "mkfsOptions": " -m 1  -O ^huge_file ", "inodes": "1000",
		reserved + "fstype": "ext4", reserved + "pv/name": "pvc-1",
	}))(t)
	if spec.Pool != "fast" || spec.Provisioning != backend.Thick || spec.Inodes != 1000 || spec.FSType != "ext4" ||
		!slices.Equal(spec.MkfsOptions, []string{"-m", "1", "-O", "^huge_file"}) || spec.Labels[reserved+"pv/name"] != "pvc-1" {
		t.Errorf("got %+v", spec)
	}
}

func TestParameters_EmptyOneLeavesTheChoiceToThePool(t *testing.T) {
	spec, err := parseParameters(map[string]string{
		"pool": "", "provisioning": "", "inodes": "", "mkfsOptions": "", reserved + "fstype": "", "onNodeLoss": "",
	})
	if err != nil || spec.Pool != "" || spec.Provisioning != "" || spec.Inodes != 0 || spec.MkfsOptions != nil || spec.FSType != "" ||
		spec.OnNodeLoss != "" {
		t.Errorf("got %+v, %v", spec, err)
	}
}

func TestParameters_ClassSetsTheFateOfAVolumeWithoutItsNode(t *testing.T) {
	policies := map[string]backend.OnNodeLoss{"delete": backend.DeleteOnNodeLoss, "retain": backend.RetainOnNodeLoss, "forget": ""}
	for value, want := range policies {
		spec, err := parseParameters(map[string]string{"onNodeLoss": value})
		if (err == nil) != (want != "") || err == nil && spec.OnNodeLoss != want {
			t.Errorf("%q: got %+v, %v", value, spec, err)
		}
	}
}

func TestParameters_UnknownKeysOfKubernetesHaveNoEffect(t *testing.T) {
	r, memory := newMemoryRig(t)
	newer := map[string]string{reserved + "of-a-newer-sidecar": "x"}
	req := createRequest("claim")
	req.Parameters = newer
	made := check.Got(r.CreateVolume(r.ctx(), req))(t)
	if all, err := memory.List(r.ctx()); err != nil || len(all) != 1 || len(all[0].Labels) != 0 {
		t.Errorf("the volumes are %+v, %v", all, err)
	}
	id := made.GetVolume().GetVolumeId()
	check.Got(r.CreateSnapshot(r.ctx(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id, Parameters: newer}))(t)
	group := &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{id}, Parameters: newer}
	check.Got(r.CreateVolumeGroupSnapshot(r.ctx(), group))(t)
}

func TestParseSize_RefusesNothing(t *testing.T) {
	if got, err := parseSize("1Gi"); err != nil || got != gib {
		t.Errorf("1Gi is %d, %v", got, err)
	}
	for _, s := range []string{"0", "0Gi", "ten"} {
		if _, err := parseSize(s); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), backend.Quote(s)) {
			t.Errorf("%q: got %v, want an error that names it", s, err)
		}
	}
}

// FuzzParameters holds that no key and value from outside does anything but set the one field they are for.
func FuzzParameters(f *testing.F) {
	for _, seed := range []struct{ key, value string }{
		{"pool", "fast"},
		{"Pool", "fast"},
		{"provisioning", "thick"},
		{"inodes", "18446744073709551615"},
		{"inodes", "+1"},
		{"mkfsOptions", "-m 1 -b 4096"},
		{reserved + "fstype", "../xfs"},
		{reserved + "pvc/name", "a\x00b"},
		{"", ""},
		{"pool\n", "x"},
	} {
		f.Add(seed.key, seed.value)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		spec, err := parseParameters(map[string]string{key: value})
		known := slices.Contains(parameters.CSI.Keys(), key) || strings.HasPrefix(key, reserved)
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) || !known && !strings.Contains(err.Error(), backend.Quote(key)) {
				t.Errorf("%q=%q: %v", key, value, err)
			}
			return
		}
		if !known {
			t.Fatalf("unknown parameter %q was accepted", key)
		}
		if spec.Name != "" || spec.Size != (backend.Size{}) || spec.Mode != "" || spec.Inodes > math.MaxInt64 ||
			key != "pool" && spec.Pool != "" || key != "inodes" && spec.Inodes != 0 || key != "mkfsOptions" && spec.MkfsOptions != nil ||
			key != "provisioning" && spec.Provisioning != "" || key != parameters.FSType && spec.FSType != "" ||
			spec.Provisioning != "" && spec.Provisioning != backend.Thin && spec.Provisioning != backend.Thick {
			t.Errorf("%q=%q became %+v", key, value, spec)
		}
		if _, err := parseSize(value); err != nil && !errors.Is(err, backend.ErrInvalid) && !errors.Is(err, backend.ErrOutOfRange) {
			t.Errorf("size %q: %v", value, err)
		}
	})
}
