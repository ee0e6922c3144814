package render

import (
	"slices"
	"strings"
	"testing"

	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func inlineArguments(t *testing.T, in Input) (found []string) {
	t.Helper()
	for _, a := range container(&nodeOf(t, in).Spec.Template.Spec, name).Args {
		if strings.HasPrefix(a, "--ephemeral") {
			found = append(found, a)
		}
	}
	return found
}

func TestInlineVolumes_AreEnabledOnlyWhereAllowed(t *testing.T) {
	allowed := func(s *v1beta1.StorageClusterSpec) {
		s.Pools = []v1beta1.PoolSpec{{Name: "fast"}, {Name: "slow"}}
		s.CSI.Ephemeral = &v1beta1.EphemeralSpec{Pools: []string{"slow", "fast"}, MaxSize: resource.MustParse("2Gi")}
	}
	for name, test := range map[string]struct {
		in        Input
		inline    bool
		profile   string
		arguments []string
	}{
		"unasked":                     {ask(nil), false, "privileged", nil},
		"allowed":                     {ask(allowed), true, "restricted", []string{"--ephemeral-pools=slow,fast", "--ephemeral-max-size=2147483648"}},
		"not allowed and still there": {func() Input { in := ask(nil); in.KeepInline = true; return in }(), true, "privileged", nil},
	} {
		t.Run(name, func(t *testing.T) {
			driver := must[storage.CSIDriver](t, test.in, "CSIDriver", "csi.holdfast.dev")
			want := []storage.VolumeLifecycleMode{storage.VolumeLifecyclePersistent}
			if test.inline {
				want = append(want, storage.VolumeLifecycleEphemeral)
			}
			if !slices.Equal(driver.Spec.VolumeLifecycleModes, want) || driver.Labels[inlineProfile] != test.profile {
				t.Errorf("the CSIDriver has %v, profile %q", driver.Spec.VolumeLifecycleModes, driver.Labels[inlineProfile])
			}
			if got := inlineArguments(t, test.in); !slices.Equal(got, test.arguments) {
				t.Errorf("the nodes get %v", got)
			}
		})
	}
}

func TestInlineVolumes_UnknownPoolIsRefused(t *testing.T) {
	refuse(t, map[string]refusal{"another pool": {func(s *v1beta1.StorageClusterSpec) {
		s.CSI.Ephemeral = &v1beta1.EphemeralSpec{Pools: []string{"fast", "none"}, MaxSize: resource.MustParse("1Gi")}
	}, []string{"spec.csi.ephemeral.pools[1]", `"none"`, "only disk, fast"}}})
}
