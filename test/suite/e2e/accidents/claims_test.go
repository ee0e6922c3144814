package accidents

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestClaim_DeletedByMistakeIsRestoredFromTheTrash(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		for _, claim := range []string{idle, raw} {
			volume := p.volumes(claim)[0]
			p.DeleteClaim(claim)
			kube.AwaitNone(p.Space, p.Client.CoreV1().PersistentVolumes(), kube.Named(volume), "PersistentVolume "+volume)
			kube.AwaitNone(p.Space, p.Holdfast("volumes"), kube.Named(volume), "volume "+volume)
			kill()
			p.Eventually(p.t.Context(), "the volume in the trash", func(context.Context) error {
				out, err := cluster.RunHoldfast(p.t, "volumes", "trash")
				if err == nil && !strings.Contains(out, volume) {
					err = os.ErrNotExist
				}
				return err
			})
			said := cluster.MustRunHoldfast(p.t, "volumes", "restore", volume, "--claim", p.Namespace+"/"+claim)
			asDocumented(p.t, said, strings.NewReplacer(volume, "pvc-0c4e", p.Namespace+"/"+claim, "shop/data-orders-0", " on "+p.Home, " on n1", "pool default", "pool fast"))
			cluster.MustKubectl(p.t, "patch", "pv", p.Volume(claim).Name, "--type=merge", "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
		}
	})
}

// asDocumented compares what the restore of a volume printed with what docs/disaster-recovery.md shows, where the volume has
// other names and another size.
func asDocumented(t *testing.T, said string, names *strings.Replacer) {
	t.Helper()
	page := check.Got(os.ReadFile(root + "/docs/disaster-recovery.md"))(t)
	said = regexp.MustCompile(`\(\d+[KMG]i`).ReplaceAllString(names.Replace(said), "(20Gi")
	shown := "    $ holdfast volumes restore pvc-0c4e --claim shop/data-orders-0\n"
	for line := range strings.Lines(said) {
		if !strings.HasPrefix(line, "waiting: ") { // which depends on the load
			shown += "    " + line
		}
	}
	if !strings.Contains(string(page), shown+"\n") {
		t.Errorf("docs/disaster-recovery.md does not show\n%s", shown)
	}
}

func TestClaim_OfAVolumeThatAdministratorsWantGoneIsNamed(t *testing.T) {
	p := keep(t, begin(t))
	volume := p.volumes(idle)[0]
	if out, err := cluster.RunHoldfast(t, "volumes", "delete", volume, "--yes"); err == nil || !strings.Contains(out, p.Namespace+"/"+idle) {
		t.Errorf("a volume of a claim: %v: %s", err, out)
	}
	p.intact(t.Name())

	pv := p.Volume(idle)
	cluster.MustKubectl(t, "patch", "pv", pv.Name, "--type=merge", "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	p.DeleteClaim(idle)
	cluster.MustKubectl(t, "delete", "pv", pv.Name)
	cluster.MustRunHoldfast(t, "volumes", "delete", volume, "--yes", "--reason", "the test wants it gone")
	delete(p.sums, idle)
	kube.AwaitNone(p.Space, p.Holdfast("volumes"), kube.Named(volume), "volume "+volume)
	p.intact(t.Name())
	cluster.MustRunHoldfast(t, "volumes", "restore", volume)
	cluster.MustRunHoldfast(t, "volumes", "delete", volume, "--yes")
}

func TestVolumes_WhosePersistentVolumeIsGoneAreAdopted(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		for _, claim := range []string{idle, raw} {
			pv := p.Volume(claim)
			cluster.MustKubectl(p.t, "patch", "pv", pv.Name, "--type=merge", "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
			p.DeleteClaim(claim)
			cluster.MustKubectl(p.t, "delete", "pv", pv.Name)
			kill()
			cluster.MustRunHoldfast(p.t, "volumes", "adopt", pv.Spec.CSI.VolumeHandle, "--claim", p.Namespace+"/"+claim, "--reclaim-policy", "Delete")
		}
	})
	for _, claim := range []string{idle, raw} { // what was adopted goes as what was provisioned does
		volume := p.volumes(claim)[0]
		p.DeleteClaim(claim)
		kube.AwaitNone(p.Space, p.Holdfast("volumes"), kube.Named(volume), "volume "+volume)
		delete(p.sums, claim)
	}
	p.intact(t.Name())
}

// forged asks for the data of an object to be deleted, as only the controller may.
func forged(uid types.UID) string {
	return `{"spec":{"deletion":{"uid":"` + string(uid) + `","requestedBy":"me","requestedAt":"2026-01-01T00:00:00.000000Z"}}}`
}

func TestRequests_AreNotWrittenByAnybodyButTheController(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		volume := p.volumes(idle)[0]
		v := check.Got(objects.Volumes().Get(p.t.Context(), volume, metav1.GetOptions{}))(p.t)
		request := forged(v.UID)
		agent := []string{"--as=system:serviceaccount:" + kube.System + ":holdfast-node", "--as-user-extra=authentication.kubernetes.io/node-name=" + v.Spec.Node}
		for says, as := range map[string][]string{"holdfast volumes delete": nil, "may not request the deletion of data": agent} {
			args := append([]string{"patch", "volumes.holdfast.dev", volume, "--type=merge", "-p", request}, as...)
			if out, err := cluster.Kubectl(p.t, args...); err == nil || !strings.Contains(out, says) {
				p.t.Errorf("%s: %v: %s", as, err, out)
			}
			kill()
		}
	})
}

func TestRequests_WrittenWhereNothingRefusesThemAreNotObeyed(t *testing.T) {
	p := keep(t, begin(t))
	p.sub("without the policies", func(p *precious) {
		p.noController()
		cluster.MustKubectl(p.t, "delete", "validatingadmissionpolicybinding", "-l", partOf)
		volumes := p.volumes(idle, raw)
		before := p.uids(volumes)
		for _, name := range volumes {
			request := forged(before[name])
			p.Eventually(p.t.Context(), "the API server to forget the policies", func(context.Context) error {
				_, err := cluster.Kubectl(p.t, "patch", "volumes.holdfast.dev", name, "--type=merge", "-p", request)
				return err
			})
			cluster.MustKubectl(p.t, "delete", "--wait=false", "volumes.holdfast.dev", name)
		}
		p.writtenAgain(before)
		p.install("install.yaml")
	})
}
