package web

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestAPortThatIsTakenIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.listening()
		defer s.listener.Close()
		_, err := New(Config{Address: s.Address(), Namespace: namespace, Watches: r.watches(), Kubernetes: r.theirs})
		if err == nil || !strings.Contains(err.Error(), s.Address()) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWhatTheServerNeedsIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for name, c := range map[string]Config{
			"no watches":   {Namespace: namespace, Kubernetes: r.theirs},
			"no client":    {Namespace: namespace, Watches: r.watches()},
			"no namespace": {Kubernetes: r.theirs, Watches: r.watches()},
		} {
			if _, err := New(c); err == nil {
				t.Errorf("%s: taken", name)
			}
		}
	})
}

func TestTheEndOfItsContextClosesThePort(t *testing.T) {
	r := newRig(t)
	s, err := New(Config{Address: "127.0.0.1:0", Namespace: namespace, Watches: r.watches(), Kubernetes: r.theirs})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	r.server = s
	if a := r.get("/livez"); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Address()); err == nil {
		conn.Close()
		t.Error("the port is open")
	}
}

func TestWhatIsKnownIsToldWhileTheApiServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", metav1.ConditionTrue, "fast")
		r.open()
		wait.Until(r, "the server is ready", r.isKept)
		r.api.Close()
		if l := read[List[Node]](r, "/api/v1/nodes"); len(l.Items) != 1 {
			t.Errorf("got %+v", l)
		}
		if a := r.get("/readyz"); a.status != http.StatusOK {
			t.Error("it is not ready any more")
		}
	})
}

func TestBeforeTheClusterIsKnownTheServerSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.api.Close()
		r.start()
		if a := r.get("/livez"); a.status != http.StatusOK {
			t.Errorf("/livez: %d %s", a.status, a.body)
		}
		if a := r.get("/readyz"); a.status != http.StatusInternalServerError || !strings.Contains(string(a.body), "[-]informer-sync failed: the cluster could not be read so far") {
			t.Errorf("/readyz: %d %s", a.status, a.body)
		}
		if a := r.get("/api/v1/nodes"); a.status != http.StatusForbidden || !strings.Contains(a.message(), "not known yet") {
			t.Errorf("/api/v1/nodes: %d %s", a.status, a.body)
		}
	})
}
