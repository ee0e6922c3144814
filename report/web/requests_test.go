package web

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestARequestThatIsWrongIsToldWhatIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		for _, test := range []struct {
			method, path string
			status       int
			want         []string
		}{
			{"POST", "/api/v1/volumes", 405, []string{"POST", "GET and HEAD"}},
			{"DELETE", "/api/v1/volumes/v1", 405, []string{"DELETE", "kubectl"}},
			{"PUT", "/livez", 405, []string{"PUT"}},
			{"GET", "/api/v2/volumes", 404, []string{`"/api/v2/volumes"`, "/api/v1/volumes", "/openapi.json"}},
			{"GET", "/api/v1/volumes/", 404, []string{"nothing is at"}},
			{"GET", "/page/", 404, []string{"/api/v1/cluster"}},
			{"POST", "/", 405, []string{"POST"}},
			{"GET", "/api/v1/volumes/none", 404, []string{`volume "none"`, "/api/v1/volumes"}},
			{"GET", "/api/v1/nodes/none", 404, []string{`node "none"`}},
			{"GET", "/api/v1/snapshots/..%2f..%2fetc", 404, []string{`"../../etc"`}},
			{"GET", "/api/v1/cluster?node=a", 400, []string{`"node"`, "none is allowed"}},
			{"GET", "/api/v1/volumes/v1?limit=1", 400, []string{"none is allowed"}},
			{"GET", "/api/v1/volumes?nodes=a", 400, []string{`"nodes"`, "attention, continue, limit, node, offset, phase, pool, search, sort"}},
			{"GET", "/api/v1/pools?phase=Ready", 400, []string{"continue, limit, node, offset, pool, search, sort"}},
			{"GET", "/api/v1/volumes?phase=ready", 400, []string{`"ready"`, "Pending, Ready, Failed, Unreachable, Lost, Deleting"}},
			{"GET", "/api/v1/nodes?phase=Failed", 400, []string{"Ready, NotReady, Unknown"}},
			{"GET", "/api/v1/volumes?limit=0", 400, []string{`"0"`, "1 to 1000"}},
			{"GET", "/api/v1/volumes?limit=1001", 400, []string{"1 to 1000"}},
			{"GET", "/api/v1/volumes?limit=many", 400, []string{`"many"`}},
			{"GET", "/api/v1/volumes?node=", 400, []string{"empty"}},
			{"GET", "/api/v1/volumes?node=a&node=b", 400, []string{"2 times"}},
			{"GET", "/api/v1/volumes?continue=abc", 400, []string{`"abc"`, "leave it out"}},
			{"GET", "/api/v1/volumes?continue=", 400, []string{"leave it out"}},
			{"GET", "/api/v1/volumes?node=%zz", 400, []string{"cannot be read"}},
			{"GET", "/api/v1/volumes?node=a;pool=b", 400, []string{"cannot be read"}},
		} {
			a := r.ask(r.request(test.method, test.path, nil))
			var e Error
			if err := json.Unmarshal(a.body, &e); err != nil || e.Status != a.status || e.Reason != http.StatusText(a.status) {
				t.Errorf("%s %s: no error as they are all: %d %s", test.method, test.path, a.status, a.body)
			}
			if a.status != test.status {
				t.Errorf("%s %s: %d %s", test.method, test.path, a.status, a.body)
			}
			for _, want := range test.want {
				if !strings.Contains(e.Message, want) {
					t.Errorf("%s %s: %q does not say %s", test.method, test.path, e.Message, want)
				}
			}
			if allow := a.header.Get("Allow"); a.status == 405 && allow != "GET, HEAD" {
				t.Errorf("%s: Allow is %q", test.method, allow)
			}
		}
	})
}

func TestABodyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		for name, body := range map[string]io.Reader{"of a length": strings.NewReader("x"), "of none": io.MultiReader(strings.NewReader("x"))} {
			if a := r.ask(r.request(http.MethodGet, "/api/v1/volumes", body)); a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %d %s", name, a.status, a.body)
			}
		}
	})
}

func TestAHeadRequestTellsTheLengthAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		a := r.ask(r.request(http.MethodHead, "/api/v1/cluster", nil))
		if a.status != http.StatusOK || len(a.body) > 0 || a.header.Get("Content-Type") != "application/json" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%d %v %q", a.status, a.header, a.body)
		}
	})
}

func TestAnEnormousHeaderIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		conn, err := r.dialTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) //nolint:gosec // who it is does not matter
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// The server may hang up before all of it is written.
		go fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: h\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("got %s", response.Status)
		}
	})
}

func TestPeersThatHoldAllConnectionsDoNotKeepOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		var first net.Conn
		for range 500 {
			<-time.After(time.Millisecond) // so that the first is idle the longest
			c, err := r.dial(t.Context(), "127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			first = cmp.Or(first, c)
		}
		if a := r.get("/api/v1/cluster"); a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
		_ = first.SetReadDeadline(time.Now().Add(time.Second)) // fails where the other end has closed it
		if _, err := first.Read(make([]byte, 1)); os.IsTimeout(err) {
			t.Error("the first of 500 still has its connection")
		}
	})
}

func TestListsCanBeFiltered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", metav1.ConditionTrue, "fast", "slow")
		r.node("b", metav1.ConditionUnknown, "slow")
		r.node("c", metav1.ConditionFalse)
		r.volume("v1", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Pool: "fast"})
		r.volume("v2", "a", "", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Pool: "fast"})
		r.volume("v3", "b", "slow", v1beta1.VolumeStatus{Phase: v1beta1.PhaseLost, Pool: "slow"})
		r.volume("v4", "b", "slow", v1beta1.VolumeStatus{})
		r.snapshot("s1", "v1", "a", v1beta1.SnapshotStatus{Phase: v1beta1.PhaseReady, Pool: "fast"})
		r.snapshot("s2", "v3", "b", v1beta1.SnapshotStatus{Phase: v1beta1.PhaseFailed, Pool: "slow"})
		r.open()
		for path, want := range map[string]string{
			"/api/v1/nodes":                               "a b c",
			"/api/v1/nodes?pool=slow":                     "a b",
			"/api/v1/nodes?phase=Unknown":                 "b",
			"/api/v1/nodes?node=c":                        "c",
			"/api/v1/pools":                               "fast slow slow",
			"/api/v1/pools?node=a":                        "fast slow",
			"/api/v1/pools?node=b&pool=fast":              "",
			"/api/v1/volumes":                             "v1 v2 v3 v4",
			"/api/v1/volumes?node=a":                      "v1 v2",
			"/api/v1/volumes?pool=fast":                   "v1 v2",
			"/api/v1/volumes?phase=Pending":               "v4",
			"/api/v1/volumes?pool=slow&phase=Lost&node=b": "v3",
			"/api/v1/snapshots?node=b":                    "s2",
			"/api/v1/snapshots?phase=Ready":               "s1",
			"/api/v1/snapshots?volume=v3":                 "s2",
		} {
			l := read[List[struct{ Name string }]](r, path)
			var got []string
			for _, i := range l.Items {
				got = append(got, i.Name)
			}
			if strings.Join(got, " ") != want || l.Remaining != 0 || l.Continue != "" {
				t.Errorf("%s: %v, %d more", path, got, l.Remaining)
			}
		}
	})
}

func TestPagesTogetherAreTheListWhateverHappensInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const all = 23
		for i := range all {
			r.volume(fmt.Sprintf("v%02d", i), "a", "fast", v1beta1.VolumeStatus{})
		}
		r.open()
		r.volumes(all)
		var got []string
		path := "/api/v1/volumes?limit=5"
		for pages := 0; ; pages++ {
			l := read[List[Volume]](r, path)
			if len(l.Items) > 5 || len(got)+len(l.Items)+l.Remaining > all {
				t.Fatalf("page %d has %d items, and %d remain", pages, len(l.Items), l.Remaining)
			}
			for _, v := range l.Items {
				got = append(got, v.Name)
			}
			if l.Continue == "" {
				break
			}
			if pages == 0 {
				// The item that the next page continues after has gone by then, and one has come.
				for _, gone := range []string{"v04", "v07"} {
					if err := r.ours.HoldfastV1beta1().Volumes().Delete(t.Context(), gone, metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				r.volumes(all - 2)
			}
			path = "/api/v1/volumes?limit=5&continue=" + l.Continue
		}
		if len(got) != all-1 || got[4] != "v04" || got[5] != "v05" || got[6] != "v06" || got[7] != "v08" || got[all-2] != "v22" {
			t.Errorf("got %v", got)
		}
		token := read[List[Volume]](r, "/api/v1/volumes?limit=1").Continue
		if a := r.get("/api/v1/snapshots?continue=" + token); a.status != http.StatusBadRequest {
			t.Errorf("another list takes the token: %d %s", a.status, a.body)
		}
	})
}

func TestRequestsCostTheApiServerNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", metav1.ConditionTrue, "fast")
		r.open()
		before := map[string]int{} // the secrets are that of the user and that of the certificate
		wait.Until(r, "everything is watched, and the certificate kept", func() bool {
			for what, times := range r.api.Requests() {
				before[what] += times
			}
			return before["create secrets"] == 2 && before["watch secrets"] == 2 && len(r.server.known().Hidden) == 0 && before["watch leases"] == 1
		})
		for range 20 {
			for _, path := range []string{"cluster", "nodes", "nodes/a", "pools", "volumes", "snapshots", "nfsservers", "findings", "operations", "events"} {
				r.get("/api/v1/" + path)
			}
		}
		if asked := r.api.Requests(); len(asked) > 0 {
			t.Errorf("the API server was asked: %v", asked)
		}
	})
}

func TestTheClusterIsToldAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", metav1.ConditionTrue, "fast", "slow")
		r.node("b", metav1.ConditionTrue, "fast")
		// What a server stores is within a volume of a node.
		r.node(v1beta1.NodeOfServer("shop/files"), metav1.ConditionTrue, "volumes")
		r.volume("v1", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Size: resource.NewQuantity(1<<30, resource.BinarySI)})
		r.open()
		c := read[Cluster](r, "/api/v1/cluster")
		if c.Name != "holdfast" || c.Volumes != 1 || c.Usage != (Usage{300 << 30, 120 << 30, 90 << 30, 180 << 30}) {
			t.Errorf("got %+v", c)
		}
		// The oldest cluster counts, as for the operator.
		r.cluster("zweiter", "")
		wait.Until(r, "a second cluster is known", func() bool { all, _ := r.server.clusters.List(labels.Everything()); return len(all) == 2 })
		if c := read[Cluster](r, "/api/v1/cluster"); c.Name != "holdfast" {
			t.Errorf("got %+v", c)
		}
	})
}

func TestWhatAnNFSServerHasIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		server := v1beta1.NodeOfServer("shop/files")
		r.node("a", metav1.ConditionTrue, "fast")
		r.node(server, metav1.ConditionTrue, "volumes")
		r.volume("on-node", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.volume("on-server", server, "volumes", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.open()
		for path, want := range map[string]string{"nodes/a": "", "nodes/" + server: "shop/files", "volumes/on-node": "", "volumes/on-server": "shop/files"} {
			if got := read[struct{ ServerRef *v1beta1.NamespacedReference }](r, "/api/v1/"+path).ServerRef.String(); got != want {
				t.Errorf("%s is of server %q, want %q", path, got, want)
			}
		}
		pools := read[List[Pool]](r, "/api/v1/pools?node="+server).Items
		if len(pools) != 1 || pools[0].ServerRef.String() != "shop/files" {
			t.Errorf("pools of the server: %+v", pools)
		}
	})
}

func TestWhatIsWrongWithAVolumeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		condition := func(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
			return metav1.Condition{Type: kind, Status: status, Reason: "Because", Message: message}
		}
		r.volume("damaged", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Conditions: []metav1.Condition{
			condition(v1beta1.ReadyCondition, metav1.ConditionTrue, "fine"), condition(v1beta1.HealthyCondition, metav1.ConditionFalse, "the image is too short"),
		}})
		r.volume("failed", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseFailed, Error: &v1beta1.Error{Code: v1beta1.ErrorExhausted, Message: "no room"}, Conditions: []metav1.Condition{
			condition(v1beta1.ReadyCondition, metav1.ConditionFalse, "not made"),
		}})
		r.volume("well", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Conditions: []metav1.Condition{condition(v1beta1.HealthyCondition, metav1.ConditionTrue, "fine")}})
		r.open()
		for name, want := range map[string]Volume{
			"damaged": {Healthy: false, Message: "the image is too short"},
			"failed":  {Healthy: true, Message: "no room"},
			"well":    {Healthy: true},
		} {
			if v := read[Volume](r, "/api/v1/volumes/"+name); v.Healthy != want.Healthy || v.Message != want.Message {
				t.Errorf("%s: %+v", name, v)
			}
		}
	})
}
