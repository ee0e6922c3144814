package cluster

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func lease(node string, renewed time.Time, seconds int32) *coordination.Lease {
	at := metav1.NewMicroTime(renewed)
	return &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: v1beta1.LeasePrefix + node},
		Spec:       coordination.LeaseSpec{RenewTime: &at, LeaseDurationSeconds: &seconds},
	}
}

func newTestPulse(t *testing.T) (*liveness, chan string) {
	changed := make(chan string, 100)
	p := newLiveness(func(node string) { changed <- node })
	t.Cleanup(p.stop)
	return p, changed
}

func TestLease_NodeLivesAsLongAsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, changed := newTestPulse(t)
		if why := p.down("a"); !strings.Contains(why, "no agent") {
			t.Errorf("a node without a Lease: %q", why)
		}
		p.saw(lease("a", time.Now(), 40))
		<-time.After(39 * time.Second)
		if why := p.down("a"); why != "" {
			t.Errorf("renewed a while ago: %q", why)
		}
		if node := <-changed; node != "a" {
			t.Errorf("the change is of %s", node)
		}
		if why := p.down("a"); !strings.Contains(why, "last renewed its Lease 40s ago") || p.last("a").IsZero() {
			t.Errorf("after its time: %q, last %s", why, p.last("a"))
		}
		p.saw(lease("a", time.Now(), 40))
		if node := <-changed; node != "a" || p.down("a") != "" {
			t.Errorf("renewed: the change is of %s, it is down by %q", node, p.down("a"))
		}
	})
}

func TestLease_ExpiredWhenFirstSeenMeansADeadNodeUntilItIsRenewed(t *testing.T) {
	p, _ := newTestPulse(t)
	wrong := time.Now().Add(-time.Hour)
	for range 2 { // seen again, not renewed
		if p.saw(lease("a", wrong, 40)); p.down("a") == "" {
			t.Error("it is taken for alive")
		}
	}
	p.saw(lease("a", wrong.Add(10*time.Second), 40))
	if why := p.down("a"); why != "" {
		t.Errorf("with a wrong clock it renews its Lease, and yet: %s", why)
	}
}

func TestLease_DeletedMeansADeadNode(t *testing.T) {
	p, changed := newTestPulse(t)
	p.saw(lease("a", time.Now(), 40))
	p.deleted(v1beta1.LeasePrefix + "a")
	if <-changed; p.down("a") == "" {
		t.Error("it is taken for alive")
	}
	p.deleted("holdfast-controller")
	p.saw(&coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "holdfast-controller"}})
	select {
	case node := <-changed:
		t.Errorf("the Lease of another process changed node %q", node)
	default:
	}
}

func TestLease_SilenceOfANodeCountsOnlyWhileTheAPIServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPulse(t)
		p.saw(lease("a", time.Now(), 40))
		expect := func(when string, down, doubted bool) {
			t.Helper()
			if got := p.down("a") != ""; got != down {
				t.Errorf("%s: down is %v", when, got)
			}
			if got := p.doubt("a") > 0; got != doubted {
				t.Errorf("%s: doubt is %v", when, got)
			}
		}
		<-time.After(79 * time.Second)
		expect("silent since the start", true, true)
		<-time.After(time.Second)
		expect("silent for long", true, false)
		p.disconnected()
		expect("no Lease is heard", true, true)
		<-time.After(79 * time.Second)
		expect("others are heard again", true, true)
		<-time.After(time.Second)
		expect("silent for long while others are heard", true, false)
		if p.doubt("b") > 0 {
			t.Error("a node that never had a Lease is doubted")
		}
	})
}

func TestLease_SilenceIsAsLongAsThisProcessCouldHaveHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPulse(t)
		p.saw(lease("old", time.Now().Add(-time.Hour), 40))
		p.saw(lease("a", time.Now(), 40))
		expect := func(when, node string, want time.Duration) {
			t.Helper()
			if got := p.silent(node); got != want {
				t.Errorf("%s: %s is silent for %s, want %s", when, node, got, want)
			}
		}
		<-time.After(30 * time.Second)
		expect("within its Lease", "a", 0)
		expect("expired before the start", "old", 30*time.Second)
		expect("without a Lease", "none", 30*time.Second)
		<-time.After(30 * time.Second)
		expect("after its Lease", "a", time.Minute)
		p.disconnected()
		<-time.After(10 * time.Second)
		expect("once the API server is heard again", "a", 10*time.Second)
		p.saw(lease("a", time.Now(), 40))
		expect("renewed", "a", 0)
	})
}

func TestLease_DeletedDoesNotEndTheSilenceOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPulse(t)
		p.since = time.Now().Add(-time.Hour)
		p.saw(lease("a", time.Now().Add(-10*time.Second), 40))
		p.saw(lease("dead", time.Now().Add(-10*time.Minute), 40))
		for _, node := range []string{"a", "dead", "none"} {
			p.deleted(v1beta1.LeasePrefix + node)
		}
		for node, want := range map[string]time.Duration{"a": 10 * time.Second, "dead": 10 * time.Minute, "none": time.Hour} {
			if got := p.silent(node); got != want || p.down(node) == "" {
				t.Errorf("%s is silent for %s, want %s", node, got, want)
			}
		}
		p.saw(lease("a", time.Now(), 40))
		if got := p.silent("a"); got != 0 || p.down("a") != "" {
			t.Errorf("with a Lease again it is silent for %s", got)
		}
		p.disconnected()
		if got := p.silent("none"); got != 0 {
			t.Errorf("when all Leases have just been listed, a node without one is silent for %s", got)
		}
	})
}
