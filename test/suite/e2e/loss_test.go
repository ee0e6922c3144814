package e2e

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// loss is a node without power, with two volumes on its disk.
type loss struct {
	*kube.Space
	t    *testing.T
	node string
	boot func()

	kept, given *corev1.PersistentVolume // what shall outlive the node, and what shall not
	claim       *corev1.PersistentVolumeClaim
	sum         string // of what is in the one that is kept
}

func loseNode(t *testing.T) *loss {
	s := begin(t)
	l := &loss{Space: s, t: t, node: secondNode(t)}
	aloneWithNodes(t)
	s.Claim("kept", "64Mi")
	s.Claim("given", "64Mi", kube.OfClass(class(t, s, with("onNodeLoss", "delete"))), kube.Labelled("of", "the-user"))
	for _, claim := range []string{"given", "kept"} {
		s.Pod("writer-of-"+claim, kube.Mount(claim, "/data"), kube.OnNode(l.node))
	}
	for _, claim := range []string{"given", "kept"} {
		s.Ready("writer-of-" + claim)
		l.sum = s.Exec("writer-of-"+claim, "sh", "-ec", fill+"; sync")
	}
	l.kept, l.given = s.Volume("kept"), s.Volume("given")
	l.claim = check.Got(s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(t.Context(), "given", metav1.GetOptions{}))(t)
	l.boot = cutPower(t, s, l.node)
	return l
}

// condition waits until the kept volume, which is there all the time, has the phase and the reason of its condition.
func (l *loss) condition(status metav1.ConditionStatus, reason, phase string) {
	l.t.Helper()
	kube.AwaitOne(l.Space, l.Holdfast("volumes"), l.kept.Spec.CSI.VolumeHandle, "to be "+reason+" and "+phase, func(v *unstructured.Unstructured) (bool, error) {
		now, _, _ := unstructured.NestedString(v.Object, "status", "phase")
		conditions, _, _ := unstructured.NestedSlice(v.Object, "status", "conditions")
		for _, c := range conditions {
			if c, _ := c.(map[string]any); c["type"] == "Ready" {
				return c["status"] == string(status) && c["reason"] == reason && now == phase, nil
			}
		}
		return false, nil
	})
}

// expectReplacement sees that the claim which may lose its content has a new, empty volume, and got its event.
func (l *loss) expectReplacement() {
	l.t.Helper()
	l.AwaitEvent("given", "VolumeGivenUp", "node "+l.node, "onNodeLoss is Delete", "new, empty volume")
	l.AwaitEvent("given", "VolumeReplaced", l.given.Spec.CSI.VolumeHandle, l.node)
	claim := kube.AwaitOne(l.Space, l.Client.CoreV1().PersistentVolumeClaims(l.Namespace), "given", "to be another",
		func(c *corev1.PersistentVolumeClaim) (bool, error) { return c.UID != l.claim.UID, nil })
	if claim.Labels["of"] != "the-user" || *claim.Spec.StorageClassName != *l.claim.Spec.StorageClassName {
		l.t.Errorf("the new claim is %+v", claim)
	}
	if found := l.Run("reader-of-given", kube.Mount("given", "/data"), kube.AnyNode, kube.Script("ls /data | grep -v lost+found || echo empty")); found != "empty\n" {
		l.t.Errorf("in the new volume is %q", found)
	}
	if at := placed(l.Volume("given")); at == "" || at == l.node {
		l.t.Errorf("the new volume is on %q", at)
	}
	kube.AwaitNone(l.Space, l.Client.CoreV1().PersistentVolumes(), kube.Named(l.given.Name), "the old persistent volume")
	kube.AwaitNone(l.Space, l.Holdfast("volumes"), kube.Named(l.given.Spec.CSI.VolumeHandle), "the old volume")
	l.discarding("to have to remove the old volume when it is back", true)
}

// discarding waits until the record of the node lists what was given up to be removed from its disk, or does not any more.
func (l *loss) discarding(what string, want bool) {
	l.t.Helper()
	kube.AwaitOne(l.Space, l.Holdfast("storagenodes"), l.node, what, func(n *unstructured.Unstructured) (bool, error) {
		entries, _, err := unstructured.NestedSlice(n.Object, "spec", "discard")
		return want == slices.ContainsFunc(entries, func(e any) bool {
			entry, _ := e.(map[string]any)
			return entry["kind"] == "Volume" && entry["name"] == l.given.Spec.CSI.VolumeHandle
		}), err
	})
}

// expectReturn boots the node and sees that it takes back what was kept, and nothing else.
func (l *loss) expectReturn() {
	l.t.Helper()
	l.boot()
	l.condition(metav1.ConditionTrue, "Ready", "Ready")
	if sum := l.Run("reader-of-kept", kube.Mount("kept", "/data"), kube.AnyNode, kube.Script("sha256sum /data/file")); sum != l.sum {
		l.t.Errorf("written %q, read %q", l.sum, sum)
	}
	if now := l.Volume("kept"); now.UID != l.kept.UID || placed(now) != l.node {
		l.t.Errorf("the claim that was kept has volume %s on %s", now.Name, placed(now))
	}
	l.discarding("to have removed what was given up", false)
	onDisk := l.OnHost(l.node, "ls "+l.Pools()+"/default/volumes")
	if !strings.Contains(onDisk, l.kept.Spec.CSI.VolumeHandle) || strings.Contains(onDisk, l.given.Spec.CSI.VolumeHandle) {
		l.t.Errorf("on the disk of %s are %s", l.node, onDisk)
	}
	kube.AwaitNone(l.Space, l.Holdfast("volumes"), kube.Named(l.given.Spec.CSI.VolumeHandle), "what was given up")
}

func TestLoss_DeletedNodeGivesUpVolumesByTheirClassAndTakesTheRestBack(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	l := loseNode(t)
	l.DeleteNode(l.node)
	for _, claim := range []string{"kept", "given"} {
		l.ForgetPod("writer-of-" + claim) // which takes the cluster another minute
	}
	l.condition(metav1.ConditionUnknown, "NodeGone", "Unreachable")
	l.AwaitClusterEvent(l.kept.Spec.CSI.VolumeHandle, "NodeGone", l.node, "comes back")
	l.expectReplacement()
	l.expectReturn()
}

func TestLoss_NodeOutOfServiceGivesUpVolumesByTheirClassAndTakesTheRestBack(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	l := loseNode(t)
	l.condition(metav1.ConditionUnknown, "NodeDown", "Ready") // down is not gone
	if claim, err := l.Client.CoreV1().PersistentVolumeClaims(l.Namespace).Get(t.Context(), "given", metav1.GetOptions{}); err != nil || claim.UID != l.claim.UID {
		t.Errorf("a node that is down is not gone, and the claim is %v, %v", claim, err)
	}
	l.Claim("new", "64Mi", kube.OfClass(class(t, l.Space, atOnce, onlyOn(l.node))))
	l.AwaitEvent("new", "ProvisioningFailed", l.node, "down")
	l.DeleteClaim("new")
	in := l.DeclareOut(l.node)
	l.condition(metav1.ConditionUnknown, "NodeGone", "Unreachable")
	l.expectReplacement()
	in()
	l.expectReturn()
}

func TestLoss_NodeThatWasOnlyDownKeepsItsVolumes(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	l := loseNode(t)
	l.condition(metav1.ConditionUnknown, "NodeDown", "Ready")
	l.boot()
	l.condition(metav1.ConditionTrue, "Ready", "Ready")
	for claim, volume := range map[string]*corev1.PersistentVolume{"kept": l.kept, "given": l.given} {
		if now := l.Volume(claim); now.UID != volume.UID {
			t.Errorf("the claim %s has volume %s", claim, now.Name)
		}
		l.Run("reader-of-"+claim, kube.Mount(claim, "/data"), kube.AnyNode, kube.Script("sha256sum /data/file"))
	}
}
