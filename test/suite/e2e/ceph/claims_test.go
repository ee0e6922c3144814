package ceph

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

var classes = map[string]string{"RBD": imageClass, "CephFS": fileClass}

func TestClaim_IsBoundAtOnceAndFollowsItsPod(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	for engine, class := range classes {
		s.Claim("data-"+class, "1Gi", kube.OfClass(class))
		if v := s.Volume("data-" + class); v.Spec.NodeAffinity != nil && strings.Contains(fmt.Sprint(v.Spec.NodeAffinity), one) {
			t.Errorf("%s: the volume is bound to nodes: %v", engine, v.Spec.NodeAffinity)
		}
	}
	for engine, class := range classes {
		t.Run(engine, func(t *testing.T) {
			s := s.In(t)
			claim := "data-" + class
			mount := kube.Mount(claim, "/data")
			written := s.Run("writes-"+class, mount, kube.OnNode(one), kube.Script("head -c 20000000 /dev/urandom >/data/file; sync /data/file; sha256sum /data/file; df -Pm /data | tail -n 1 | awk '{ print ($2 > 900 && $2 <= 1024) }'"))
			if !strings.HasSuffix(written, "\n1\n") {
				t.Errorf("a volume of 1 GiB shows another size: %s", written)
			}
			s.DeletePod("writes-" + class)
			found := s.Run("reads-"+class, mount, kube.OnNode(other), kube.Script("sha256sum /data/file"))
			if !strings.HasPrefix(written, found) {
				t.Errorf("node %s reads %s, and %s was written on %s", other, found, written, one)
			}
		})
	}
}

func TestBlock_DeviceFollowsItsPod(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	s.Claim("disk", "1Gi", kube.OfClass(imageClass), kube.Block)
	device := kube.Device("disk", "/dev/disk")
	written := s.Run("writes", device, kube.OnNode(one), kube.Script("head -c 8388608 /dev/urandom >/tmp/content; dd if=/tmp/content of=/dev/disk bs=1M conv=fsync 2>/dev/null; sha256sum </tmp/content"))
	s.DeletePod("writes")
	if found := s.Run("reads", device, kube.OnNode(other), kube.Script("head -c 8388608 /dev/disk | sha256sum")); found != written {
		t.Errorf("node %s reads %s, and %s was written on %s", other, found, written, one)
	}
}

func TestShared_TwoNodesWriteOneCephFS(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	s.Claim("data", "1Gi", kube.OfClass(fileClass), kube.AccessMode(corev1.ReadWriteMany))
	for name, node := range map[string]string{"first": one, "second": other} {
		s.Pod(name, kube.Mount("data", "/data"), kube.OnNode(node))
		s.Ready(name)
	}
	s.Exec("first", "sh", "-ec", "echo first >/data/first; sync /data/first")
	if found := s.Exec("second", "dd", "if=/data/first", "status=none"); found != "first\n" {
		t.Errorf("the other node reads %q", found)
	}
	s.Exec("second", "sh", "-ec", "echo second >/data/first")
	if found := s.Exec("first", "dd", "if=/data/first", "status=none"); found != "second\n" {
		t.Errorf("the first node reads %q", found)
	}
	if out, err := cluster.ExecIn(t.Context(), s.Namespace, "first", "", "dd", "if=/dev/zero", "of=/data/more", "bs=1M", "count=1200", "conv=fsync"); err == nil {
		t.Errorf("1200 MiB are in a volume of 1 GiB: %s", out)
	}
}

func TestImage_IsForOneNodeAtATime(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	s.Claim("data", "1Gi", kube.OfClass(imageClass))
	s.Pod("has", kube.Mount("data", "/data"), kube.OnNode(one), kube.Script("while :; do date >/data/now; sync /data/now; sleep 0.2; done"))
	s.Ready("has")
	s.Pod("wants", kube.Mount("data", "/data"), kube.OnNode(other))
	s.AwaitEvent("wants", "FailedAttachVolume", "already used")
	s.Exec("has", "sh", "-ec", "touch /data/file; sync /data/file")
	s.DeletePod("has")
	s.Ready("wants")
	s.Exec("wants", "cat", "/data/file", "/data/now")
}

func TestSnapshot_IsRestoredAndTheVolumeGrows(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	for engine, class := range classes {
		t.Run(engine, func(t *testing.T) {
			s := s.In(t)
			of := func(name string) string { return name + "-" + class }
			s.Claim(of("data"), "1Gi", kube.OfClass(class))
			s.Pod(of("user"), kube.Mount(of("data"), "/data"), kube.OnNode(one))
			s.Ready(of("user"))
			s.Exec(of("user"), "sh", "-ec", "echo before >/data/file; sync")
			s.Snapshot(of("snapshot"), of("data"))
			s.Exec(of("user"), "sh", "-ec", "echo after >/data/file; sync")
			for name, source := range map[string]kube.ClaimOption{"restored": kube.From("VolumeSnapshot", of("snapshot")), "cloned": kube.From("PersistentVolumeClaim", of("data"))} {
				s.Claim(of(name), "1Gi", kube.OfClass(class), source)
			}
			if found := s.Run(of("reads-restored"), kube.Mount(of("restored"), "/data"), kube.OnNode(other), kube.Script("cat /data/file")); found != "before\n" {
				t.Errorf("the restored volume has %q", found)
			}
			if found := s.Run(of("reads-cloned"), kube.Mount(of("cloned"), "/data"), kube.OnNode(other), kube.Script("cat /data/file")); found != "after\n" {
				t.Errorf("the cloned volume has %q", found)
			}
			s.Grow(of("data"), "2Gi")
			if found := s.Exec(of("user"), "sh", "-ec", "df -Pm /data | tail -n 1 | awk '{ print ($2 > 1800) }'"); found != "1\n" {
				t.Errorf("the volume of 2 GiB shows %s", s.Exec(of("user"), "df", "-m", "/data"))
			}
		})
	}
}

func TestNode_WithoutAClientOfCephIsNamed(t *testing.T) {
	s := begin(t)
	if hasClients() {
		t.Skip("the kernel of this machine has the clients of Ceph: run it where it has not")
	}
	for module, class := range map[string]string{"rbd": imageClass, "ceph": fileClass} {
		s.Claim("data-"+class, "1Gi", kube.OfClass(class))
		mount := kube.Mount("data-"+class, "/data")
		s.Pod("selects-"+class, mount, kube.OnNode(s.Home))
		s.AwaitEvent("selects-"+class, "FailedScheduling", "PersistentVolume's node affinity")
		s.AwaitEvent("selects-"+class, "NoCephClient", "kernel has no module "+module, s.Home)
		s.Pod("names-"+class, mount, func(p *corev1.Pod) { p.Spec.NodeName = s.Home })
		s.AwaitEvent("names-"+class, "FailedAttachVolume", "kernel has no module "+module, s.Home)
	}
}
