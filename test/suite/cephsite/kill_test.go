//go:build ceph

package cephsite

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestKilled_AmidCreationsAndDeletionsItLosesAndLeaksNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		const volumes = 10
		s := newSite(t, engine)
		s.start()
		s.awaitReady()
		var all []*v1beta1.Volume
		for i := range volumes {
			all = append(all, s.request(fmt.Sprint("v", i)))
		}
		for _, some := range []int{1, volumes / 2} {
			s.until(fmt.Sprintf("%d are made", some), func() (bool, string) { return len(s.inCeph()) >= some, "fewer are" })
			s.kill()
			s.start()
		}
		for i, v := range all {
			all[i] = s.awaitVolume(v.Name, v1beta1.PhaseReady)
		}
		if made := s.inCeph(); len(made) != volumes {
			t.Errorf("in Ceph there is %q", made)
		}
		for _, v := range all {
			s.requestRemoval(v)
		}
		s.until("some are removed", func() (bool, string) { return len(s.inCeph()) <= volumes-3, "fewer are" })
		s.kill()
		s.start()
		for _, v := range all {
			s.awaitGone(v)
		}
		if left := s.inCeph(); len(left) != 0 {
			t.Errorf("in Ceph there is still %q", left)
		}
		if engine == v1beta1.EngineRBD { // what was being made when a process was killed stays in Ceph's trash for a while
			left, err := small.Command(t.Context(), "rbd", "trash", "ls", "--all", s.place())
			if want := strings.Count(s.printed(), "an image that was not completed is discarded"); err != nil || len(strings.Fields(left)) > 2*want {
				t.Errorf("in the trash there is %q, %v, where at most %d were not completed", left, err, want)
			}
		}
		// Of clients that were killed while they began to watch an image.
		t.Logf("%d images were watched by the dead alone", strings.Count(s.printed(), "clients that are shut out of the cluster alone"))
		s.until("nothing is promised", func() (bool, string) {
			p := s.storageNode().Status.Pools[0]
			return p.Promised.IsZero() && p.Volumes == 0, fmt.Sprintf("%+v", p)
		})
	})
}

func TestOutage_IsToldAndEndsByItself(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		s := newSite(t, engine)
		s.start()
		s.awaitReady()
		v := s.awaitVolume(s.request("a").Name, v1beta1.PhaseReady)
		s.awaitPool()
		check.OK(t, small.Pause(rig.Monitor))
		resumed := false
		resume := func() {
			if !resumed {
				resumed = true
				check.Report(t, errors.Join(small.Resume(rig.Monitor), small.AwaitHealthy(t.Context())))
			}
		}
		defer resume()
		s.awaitPool("no monitor of the Ceph cluster can be reached", s.pool.Ceph.Monitors[0])
		if status, body := s.probe("/readyz"); status != http.StatusInternalServerError || !strings.Contains(body, s.pool.Ceph.Monitors[0]) {
			t.Errorf("/readyz: %d %s", status, body)
		}
		if status, body := s.probe("/livez"); status != http.StatusOK {
			t.Errorf("/livez: %d %s", status, body)
		}
		if n := s.storageNode().Status.Pools[0]; n.Capacity.IsZero() || n.Volumes != 1 {
			t.Errorf("what was known of the pool is forgotten: %+v", n)
		}
		if now, err := s.holdfast.HoldfastV1beta1().Volumes().Get(t.Context(), v.Name, metav1.GetOptions{}); err != nil || now.Status.Phase == v1beta1.PhaseLost {
			t.Errorf("its volume is %+v, %v", now.Status, err)
		}
		waits := s.request("b")
		resume()
		s.awaitPool()
		s.awaitReady()
		s.awaitVolume(waits.Name, v1beta1.PhaseReady)
		s.awaitVolume(v.Name, v1beta1.PhaseReady)
	})
}
