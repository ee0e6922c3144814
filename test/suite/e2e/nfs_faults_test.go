package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// hold starts a holder on a node for the volume of each class, and returns the pods, which are named as their claims.
func hold(t *testing.T, s *kube.Space, node string, classes map[string]string) (pods []string) {
	t.Helper()
	for name, class := range classes {
		s.Claim(name, "64Mi", byMany, kube.OfClass(class))
		s.Pod(name, kube.Mount(name, "/data"), kube.OnNode(node), kube.Script(kube.Holder))
		pods = append(pods, name)
	}
	for _, pod := range pods {
		s.Ready(pod)
	}
	return pods
}

// byBothDoors are classes that lead to the test's server.
func byBothDoors(t *testing.T, s *kube.Space) map[string]string {
	t.Helper()
	classes := map[string]string{}
	for door, class := range doors {
		classes[door] = class(t, s)
	}
	return classes
}

// goesOn fails unless each pod has written beyond what it had written when the trouble was over, and all that it has
// said is in its file, once.
func goesOn(t *testing.T, s *kube.Space, pods []string, trouble func()) {
	t.Helper()
	before := map[string]int{}
	for _, pod := range pods {
		s.AwaitLines(pod, 5)
	}
	trouble()
	for _, pod := range pods {
		before[pod] = s.Wrote(pod)
	}
	for _, pod := range pods {
		s.AwaitLines(pod, before[pod]+20)
		if log := s.Exec(pod, "sh", "-c", "test $(wc -l </data/log) -ge "+fmt.Sprint(before[pod])+" && awk '$1 != NR { print NR, $1 }' /data/log"); log != "" {
			t.Errorf("of pod %s lines are missing or written twice: %s", pod, log)
		}
		if restarts := s.Ready(pod).Status.ContainerStatuses[0].RestartCount; restarts > 0 {
			t.Errorf("pod %s failed %d times", pod, restarts)
		}
	}
}

// stillHold fails unless the pods have their locks, which only another kernel can show.
func stillHold(t *testing.T, s *kube.Space, server string, pods []string, node string) {
	t.Helper()
	for _, pod := range pods {
		found := s.Run("rival-of-"+pod, kube.Mount(pod, "/data"), kube.OnNode(node), kube.Script("flock -n /data/lock echo free || { test $? = 1 && echo held; }"))
		if found != "held\n" {
			t.Errorf("to another node the lock of pod %s is %q; the server has these locks and these clients: %s", pod, found,
				s.Exec(server, "sh", "-c", "grep OFD /proc/locks; find /data/recovery -type d"))
		}
		s.DeletePod("rival-of-" + pod)
	}
}

// cutForHalfAMinute cuts the network to the server's pod, during which the pods write nothing.
func cutForHalfAMinute(t *testing.T, s *kube.Space, server string, pods []string) {
	t.Helper()
	mend := s.CutPort(server, 2049)
	over, quiet := time.After(30*time.Second), time.After(10*time.Second)
	<-quiet // what was on its way has been said
	stuck := map[string]int{}
	for _, pod := range pods {
		stuck[pod] = s.Wrote(pod)
	}
	<-over
	for _, pod := range pods {
		if now := s.Wrote(pod); now != stuck[pod] {
			t.Errorf("pod %s has written %d lines, and then %d: the network is not cut", pod, stuck[pod], now)
		}
	}
	mend()
}

func TestNFSFault_ClientsContinueWhenTheServerIsKilledHangsIsReplacedOrCutOffForHalfAMinute(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	node, other := otherNodes(t)
	server := serve(t, s)
	classes := byBothDoors(t, s)
	pods := hold(t, s, node, classes)
	s.Claim("late", "64Mi", byMany, kube.OfClass(classes["csi"]))
	s.Volume("late")
	for _, trouble := range []struct {
		what string
		make func()
	}{
		{"killed", func() { s.Exec(server, "sh", "-c", "kill -9 $(pidof ganesha.nfsd)") }},
		{"hangs", func() { s.Exec(server, "sh", "-c", "kill -STOP $(pidof ganesha.nfsd)") }},
		{"another pod", func() { s.DeletePod(server); s.Ready(server) }},
		{"cut off", func() { cutForHalfAMinute(t, s, server, pods) }},
	} {
		t.Log(trouble.what)
		goesOn(t, s, pods, trouble.make)
		stillHold(t, s, server, pods, other)
	}
	// A pod that mounts during the cut gets the error of the driver, whose call ends by itself, and not of the kubelet, which would wait
	// much longer. This may take long enough for locks to be lost.
	s.Claim("ends", "64Mi", byMany, kube.OfClass(classes["csi"]))
	s.Pod("ends", kube.Mount("ends", "/data"), kube.OnNode(node))
	s.Ready("ends")
	mend := s.CutPort(server, 2049)
	s.DeletePod("ends") // the mount is given up
	s.Pod("late", kube.Mount("late", "/data"), kube.OnNode(node))
	s.AwaitEvent("late", "FailedMount", "Unavailable", "the server does not answer")
	mend()
	s.Ready("late")
}

func TestNFSFault_ClientsContinueWhenTheNodeOfTheServerLostPower(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	home, node := otherNodes(t)
	aloneWithNodes(t)
	server := s.Serve("shared", home, storage())
	pods := hold(t, s, node, byBothDoors(t, s))
	before := s.Ready(server)
	goesOn(t, s, pods, func() {
		boot := cutPower(t, s, home)
		boot()
		after := kube.AwaitOne(s, s.Client.CoreV1().Pods(s.Namespace), server, "to run again", func(p *corev1.Pod) (bool, error) {
			status := p.Status.ContainerStatuses
			return len(status) > 0 && status[0].Ready && (p.UID != before.UID || status[0].RestartCount > 0), nil
		})
		t.Logf("the server's pod was started %d times more, and is the same: %t", after.Status.ContainerStatuses[0].RestartCount, after.UID == before.UID)
	})
	stillHold(t, s, server, pods, home)
}

// Only storage that itself is reached over the network can move, such as a claim of another server. The server sees its
// clients at another address of their node when it has come there, and again when it has left.
func TestNFSFault_ClientsContinueWhenTheServerMovesToAnotherNode(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	node, other := otherNodes(t)
	s.Serve("below", s.Home, storage())
	s.Claim("moves", "1Gi", byMany, kube.OfClass(plain(t, s, "nfsServer", s.Namespace+"/below")))
	server := s.Serve("shared", other, map[string]any{"storage": map[string]any{"claimName": "moves"}}) // with the usual grace
	s.BeforeEnd(func(ctx context.Context) error { return s.EndServerOn(ctx, "moves", "shared") })
	pods := hold(t, s, node, byBothDoors(t, s))
	for _, to := range []string{node, other} {
		goesOn(t, s, pods, func() {
			amend(t, s, "shared", map[string]any{"nodeSelectorTerms": kube.NodeTerms(to)})
			kube.AwaitOne(s, s.Client.CoreV1().Pods(s.Namespace), server, "to serve on node "+to, func(p *corev1.Pod) (bool, error) {
				status := p.Status.ContainerStatuses
				return p.Spec.NodeName == to && len(status) > 0 && status[0].Ready, nil
			})
		})
		stillHold(t, s, server, pods, other)
	}
}
