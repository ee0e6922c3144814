package accidents

import (
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestEtcd_PutBackToAnOlderStateLosesNoByte(t *testing.T) {
	hostfs.Long(t)
	p := keep(t, begin(t))
	state := filepath.Join(t.TempDir(), "state")
	p.control("save-state", state)
	p.Claim("later", "32Mi")
	sum := p.Run("fill-later", kube.Mount("later", "/data"), kube.Script(fill))
	p.DeletePod("fill-later")
	later := p.volumes("later")[0]

	p.control("restore-state", state)
	p.intact(t.Name())
	kube.AwaitOne(p.Space, p.Holdfast("volumes"), later, "to be found on the disk", func(o *unstructured.Unstructured) (bool, error) {
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		return o.GetLabels()[v1beta1.AdoptedLabel] != "" && phase == string(v1beta1.PhaseReady), nil
	})
	cluster.MustRunHoldfast(t, "volumes", "adopt", later, "--claim", p.Namespace+"/later", "--reclaim-policy", "Delete")
	p.sums["later"] = sum
	p.intact(t.Name())
}

// control runs a command of the cluster's program.
func (p *precious) control(args ...string) {
	p.t.Helper()
	said := check.Got(p.Do(p.t.Context(), args...))(p.t)
	p.t.Log(said)
}
