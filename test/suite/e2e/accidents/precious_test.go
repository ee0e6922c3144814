package accidents

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// precious is data that must survive: volumes idle and mounted, a block volume, a snapshot, and with a server volumes of
// both its doors, with the checksum of each.
type precious struct {
	*kube.Space
	t      *testing.T
	sums   map[string]string // by claim, or by snapshot
	client string            // a node whose kernel mounts NFS; "" without a server
	looks  int
}

const (
	idle, used, raw, snap = "idle", "used", "raw", "snap"
	shared, plain         = "shared", "plain"

	fill = `head -c 3000000 /dev/urandom >/data/file; sync /data/file; sha256sum </data/file`
	read = `sha256sum </data/file`

	fillRaw = `head -c 3145728 /dev/urandom | dd of=/dev/raw bs=1M iflag=fullblock conv=fsync 2>/dev/null; head -c 3145728 /dev/raw | sha256sum`
	readRaw = `head -c 3145728 /dev/raw | sha256sum`
)

// keep writes what must survive. The pod of the claim used keeps it mounted until the test ends.
func keep(t *testing.T, s *kube.Space) *precious {
	t.Helper()
	p := &precious{Space: s, t: t, sums: map[string]string{}}
	for _, claim := range []string{idle, used} {
		s.Claim(claim, "32Mi")
	}
	s.Claim(raw, "16Mi", kube.Block)
	p.sums[idle] = s.Run("fill-idle", kube.Mount(idle, "/data"), kube.Script(fill))
	p.sums[raw] = s.Run("fill-raw", kube.Device(raw, "/dev/raw"), kube.Script(fillRaw))
	s.Pod("user", kube.Mount(used, "/data"))
	s.Ready("user")
	p.sums[used] = s.Exec("user", "sh", "-ec", fill)
	s.Snapshot(snap, idle)
	p.sums[snap] = p.sums[idle]
	for _, pod := range []string{"fill-idle", "fill-raw"} {
		s.DeletePod(pod)
	}
	if hostfs.All() {
		return p.keepShared()
	}
	return p
}

// keepShared adds an NFS server with a volume of each of its doors, and a pod that keeps one of them mounted. Where there is
// time, each test has it.
func (p *precious) keepShared() *precious {
	p.t.Helper()
	if p.client != "" {
		return p
	}
	nodes := p.Nodes(p.t)
	if len(nodes) < 2 {
		p.t.Fatal("the second node is missing: its kernel has the client of NFS")
	}
	p.client = nodes[1]
	p.Serve("shared", p.Home, map[string]any{
		"storage": map[string]any{"storageClassName": "holdfast", "size": "1Gi"}, "reclaimPolicy": "Delete", "gracePeriod": "60s",
	})
	for claim, class := range map[string]string{
		shared: p.Class(shared, "csi.holdfast.dev", "shared", "true", "nfsServer", p.Namespace+"/shared"),
		plain:  p.Class(plain, "nfs.holdfast.dev", "nfsServer", p.Namespace+"/shared"),
	} {
		p.Claim(claim, "32Mi", kube.AccessMode(corev1.ReadWriteMany), kube.OfClass(class))
		p.sums[claim] = p.Run("fill-"+claim, kube.Mount(claim, "/data"), kube.OnNode(p.client), kube.Script(fill))
		p.DeletePod("fill-" + claim)
	}
	p.Pod("sharer", kube.Mount(shared, "/data"), kube.OnNode(p.client))
	p.Ready("sharer")
	return p
}

// intact says that all is as it was: each claim is bound, each checksum is what it was, and a new
// claim can be made and used. Pods that used a volume go on with it.
func (p *precious) intact(after string) {
	p.t.Helper()
	p.looks++
	for claim, sum := range p.sums {
		p.same(claim, sum, after)
	}
	fresh := fmt.Sprintf("fresh-%d", p.looks)
	p.Claim(fresh, "16Mi")
	p.Run(fresh, kube.Mount(fresh, "/data"), kube.Script(fill))
	p.DeletePod(fresh)
	p.DeleteClaim(fresh)
}

func (p *precious) same(claim, sum, after string) {
	p.t.Helper()
	pod, script := fmt.Sprintf("look-%s-%d", claim, p.looks), kube.Script(read)
	var got string
	switch claim {
	case used:
		got = p.Exec("user", "sh", "-ec", read)
	case raw:
		got = p.Run(pod, kube.Device(raw, "/dev/raw"), kube.Script(readRaw))
	case snap:
		restored := fmt.Sprintf("restored-%d", p.looks)
		p.Claim(restored, "32Mi", kube.From("VolumeSnapshot", snap))
		got = p.Run(pod, kube.Mount(restored, "/data"), script)
		defer p.DeleteClaim(restored)
	case shared, plain:
		got = p.Run(pod, kube.Mount(claim, "/data"), kube.OnNode(p.client), script)
		if mounted := p.Exec("sharer", "sh", "-ec", read); claim == shared && mounted != sum {
			p.t.Errorf("after %s: %s has the checksum %q where it was mounted all the time, want %q", after, claim, mounted, sum)
		}
	default:
		got = p.Run(pod, kube.Mount(claim, "/data"), script)
	}
	if got != sum {
		p.t.Errorf("after %s: %s has the checksum %q, want %q", after, claim, strings.TrimSpace(got), strings.TrimSpace(sum))
	}
	if claim != used {
		p.DeletePod(pod)
	}
}

// volumes are the names of the Volume objects of claims.
func (p *precious) volumes(claims ...string) (names []string) {
	p.t.Helper()
	for _, claim := range claims {
		names = append(names, kube.VolumeID(p.Volume(claim)))
	}
	return names
}

// uids are those of the Volume objects.
func (p *precious) uids(volumes []string) map[string]types.UID {
	p.t.Helper()
	all := map[string]types.UID{}
	for _, name := range volumes {
		// The server writes the object of a plain volume once it has made the volume.
		o := kube.AwaitOne(p.Space, p.Holdfast("volumes"), name, "to have an object", func(*unstructured.Unstructured) (bool, error) { return true, nil })
		all[name] = o.GetUID()
	}
	return all
}
