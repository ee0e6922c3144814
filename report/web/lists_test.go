package web

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) names(path string) (names []string, total int) {
	r.Helper()
	l := read[List[struct{ Name string }]](r, path)
	for _, item := range l.Items {
		names = append(names, item.Name)
	}
	return names, l.Total
}

func TestLists_AreSearchedSortedAndTurnedByPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.volume("v1", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Size: gib(3), Used: gib(1)})
		r.volume("v2", "b", "slow", v1beta1.VolumeStatus{Phase: v1beta1.PhaseLost, Size: gib(9), Used: gib(2)})
		r.volume("v3", "b", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Size: gib(3), Used: gib(3), Conditions: []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse}}})
		r.volume("v4", "Node-C", "fast", v1beta1.VolumeStatus{})
		r.open()
		r.volumes(4)
		for query, want := range map[string]string{
			"":                                   "v1 v2 v3 v4 of 4",
			"sort=size":                          "v4 v1 v3 v2 of 4", // what is equal is in the order of the names
			"sort=-size":                         "v2 v1 v3 v4 of 4",
			"sort=-use":                          "v3 v1 v2 v4 of 4",
			"sort=-phase":                        "v2 v3 v4 v1 of 4",
			"sort=-size&limit=2":                 "v2 v1 of 4",
			"sort=-size&limit=2&offset=2":        "v3 v4 of 4",
			"offset=3":                           "v4 of 4",
			"offset=99":                          " of 4",
			"search=node-c":                      "v4 of 1",
			"search=FAST+shop":                   "v1 v3 v4 of 3",
			"search=fast+lost":                   " of 0",
			"search=lost":                        "v2 of 1",
			"search=shop%2Fv3":                   "v3 of 1",
			"search=%20":                         "v1 v2 v3 v4 of 4",
			"attention=true":                     "v2 v3 of 2",
			"attention=false&sort=-creationTime": "v1 v4 of 2",
			"attention=true&node=b&search=3":     "v3 of 1",
		} {
			names, total := r.names("/api/v1/volumes?" + query)
			if got := fmt.Sprint(strings.Join(names, " "), " of ", total); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
		for query, want := range map[string]string{
			"sort=colour": "-claim", "sort=--size": "must be one of", "offset=-1": "0 to", "offset=x": "whole number", "attention=maybe": "true, false", "search=": "empty",
		} {
			if a := r.get("/api/v1/volumes?" + query); a.status != http.StatusBadRequest || !strings.Contains(a.message(), want) {
				t.Errorf("%s: %d %s", query, a.status, a.message())
			}
		}
		next := read[List[Volume]](r, "/api/v1/volumes?limit=1").Continue
		for _, query := range []string{"sort=size", "offset=1"} {
			if a := r.get("/api/v1/volumes?" + query + "&continue=" + next); a.status != http.StatusBadRequest || !strings.Contains(a.message(), "order of the names") {
				t.Errorf("%s: %d %s", query, a.status, a.message())
			}
		}
	})
}

// server makes an NFSServer.
func (r *rig) nfsServer(namespace, name string, status v1beta1.NFSServerStatus) {
	r.Helper()
	servers := r.ours.HoldfastV1beta1().NFSServers(namespace)
	s, err := servers.Create(r.Context(), &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	s.Status = status
	s.Status.ObservedGeneration = s.Generation
	if _, err = servers.UpdateStatus(r.Context(), s, metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) warn(name, reason string, at time.Time) {
	r.Helper()
	if _, err := r.theirs.CoreV1().Events("shop").Create(r.Context(), &core.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: core.EventTypeWarning, Reason: reason, Message: "of " + name, LastTimestamp: metav1.NewTime(at),
		InvolvedObject: core.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name}, Source: core.EventSource{Component: "holdfast"},
	}, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

func TestServersFindingsOperationsAndEventsAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", metav1.ConditionUnknown, "fast")
		r.nfsServer("shop", "files", v1beta1.NFSServerStatus{
			Phase: v1beta1.NFSRunning, Endpoint: "10.0.0.1:2049", ClaimName: "data", Node: "a", Capacity: gib(9), Promised: gib(4), Exports: 3, Clients: 2, Access: v1beta1.NFSReadWrite,
		})
		r.nfsServer("shop", "other", v1beta1.NFSServerStatus{Phase: v1beta1.NFSDegraded, Node: "b"})
		r.volume("v", "a", "fast", v1beta1.VolumeStatus{})
		r.warn("first", "Early", time.Now().Add(-time.Hour))
		r.warn("second", "Late", time.Now())
		r.open()
		wait.Until(r, "all is known", func() bool {
			return r.get("/api/v1/events").status == http.StatusOK && r.get("/api/v1/nfsservers").status == http.StatusOK && len(r.server.known().Hidden) == 0
		})
		servers := read[List[NFSServer]](r, "/api/v1/nfsservers?sort=-clients").Items
		if len(servers) != 2 || servers[0].Namespace != "shop" || servers[0].Name != "files" || servers[0].ClaimName != "data" || servers[0].Capacity != 9<<30 || servers[0].Level != facts.Fine || servers[1].Level != facts.Problem {
			t.Errorf("servers: %+v", servers)
		}
		for query, want := range map[string]string{"node=b": "other", "phase=Running": "files", "search=2049": "files", "search=shop/other": "other"} {
			if names, _ := r.names("/api/v1/nfsservers?" + query); strings.Join(names, " ") != want {
				t.Errorf("%s: %v", query, names)
			}
		}
		if found := read[List[facts.Finding]](r, "/api/v1/findings?search=storagenode"); found.Total != 1 || found.Items[0].Name != "a" {
			t.Errorf("findings: %+v", found)
		}
		if done := read[List[facts.Operation]](r, "/api/v1/operations"); done.Total != 1 || done.Items[0].Verb != facts.Create || done.Items[0].ClaimRef.String() != "shop/v" {
			t.Errorf("operations: %+v", done)
		}
		events := read[List[facts.Event]](r, "/api/v1/events?limit=1")
		if events.Total != 2 || events.Remaining != 1 || events.Continue != "" || events.Items[0].Reason != "Late" {
			t.Errorf("events: %+v", events)
		}
		if rest := read[List[facts.Event]](r, "/api/v1/events?limit=1&offset=1"); rest.Items[0].Reason != "Early" || rest.Remaining != 0 {
			t.Errorf("the rest of the events: %+v", rest)
		}
	})
}

// An empty list would say that there is nothing.
func TestEventsThatMayNotBeReadAreNotAnEmptyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.deny(readsOf("events", ""))
		r.open()
		wait.Until(r, "the answer says that the right is missing", func() bool {
			a := r.get("/api/v1/events")
			return a.status == http.StatusServiceUnavailable && strings.Contains(a.message(), "apply the manifest")
		})
		if a := r.get("/api/v1/findings"); a.status != http.StatusOK {
			t.Errorf("what else there is: %d %s", a.status, a.message())
		}
	})
}

func TestOptionalKinds_WhoseRightIsTakenAwayAreHiddenUntilItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		jobs, upgrades := r.ours.HoldfastV1beta1().NodeJobs(), r.ours.HoldfastV1beta1().StorageUpgrades()
		r.warn("first", "Early", time.Now())
		r.nfsServer("shop", "files", v1beta1.NFSServerStatus{})
		if _, err := jobs.Create(t.Context(), &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := upgrades.Create(t.Context(), &v1beta1.StorageUpgrade{ObjectMeta: metav1.ObjectMeta{Name: "next"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.open()
		known := func() [4]int {
			f := r.server.known()
			return [4]int{len(f.Warnings), len(f.Servers), len(f.Jobs), len(f.Upgrades)}
		}
		wait.Until(r, "all kinds are known", func() bool { return known() == [4]int{1, 1, 1, 1} })
		r.deny(func(q *http.Request) bool {
			return slices.Contains([]string{"events", "nfsservers", "nodejobs", "storageupgrades"}, path.Base(q.URL.Path))
		})
		r.api.BreakWatches()
		wait.Until(r, "all four are hidden", func() bool { return len(r.server.known().Hidden) == 4 && known() == [4]int{} })
		for of, want := range map[string]int{
			"/api/v1/events": http.StatusServiceUnavailable, "/api/v1/nfsservers": http.StatusServiceUnavailable, "/api/v1/findings": http.StatusOK, "/api/v1/volumes": http.StatusOK,
		} {
			if a := r.get(of); a.status != want || want != http.StatusOK && !strings.Contains(a.message(), "no role has it") {
				t.Errorf("%s: %d %s", of, a.status, a.body)
			}
		}
		r.warn("second", "Late", time.Now())
		r.deny(nil)
		wait.Until(r, "all kinds are known again", func() bool { return known() == [4]int{2, 1, 1, 1} && len(r.server.known().Hidden) == 0 })
		if lines := r.log.lines("the API cannot show a kind"); len(lines) != 4 {
			t.Errorf("it was logged %d times: %v", len(lines), lines)
		}
	})
}

func TestAnAnswerThatHasNotChangedIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.volume("v1", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.open()
		r.volumes(1)
		first := r.get("/api/v1/volumes")
		q := r.request(http.MethodGet, "/api/v1/volumes", nil)
		q.Header.Set("If-None-Match", first.header.Get("ETag"))
		if a := r.ask(q); a.status != http.StatusNotModified || len(a.body) > 0 || a.header.Get("ETag") != first.header.Get("ETag") {
			t.Errorf("%d with %d bytes", a.status, len(a.body))
		}
		r.volume("v2", "a", "fast", v1beta1.VolumeStatus{})
		wait.Until(r, "the other volume is in the answer", func() bool { return r.ask(q).status == http.StatusOK })
	})
}

func TestTheAgeOfWhatIsKnownIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		if age := r.get("/api/v1/cluster").header.Get("Age"); age != "" {
			t.Errorf("before a Lease is known: %q", age)
		}
		leases := r.theirs.CoordinationV1().Leases(namespace)
		lease, err := leases.Create(t.Context(), &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "holdfast-node-a", Namespace: namespace}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wait.Until(r, "the Lease is known", func() bool { return r.get("/api/v1/cluster").header.Get("Age") == "0" })
		<-time.After(90 * time.Second)
		if age := r.get("/api/v1/nodes").header.Get("Age"); age != "90" {
			t.Errorf("after 90 s: %q", age)
		}
		lease.Annotations = map[string]string{"renewed": "true"}
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		wait.Until(r, "it is renewed", func() bool { return r.get("/api/v1/nodes").header.Get("Age") == "0" })
	})
}

func TestCephPool_IsNamedInEveryAnswer(t *testing.T) {
	node := v1beta1.NodeOfCephPool("block")
	n := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1beta1.StorageNodeStatus{Pools: []v1beta1.Pool{{Name: "block"}}}}
	v := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{Node: node}}
	shown := showNode(n)
	if shown.CephPool != "block" || shown.ServerRef != nil || shown.Pools[0].CephPool != "block" || showVolume(v, time.Now()).CephPool != "block" {
		t.Errorf("a node: %+v, a volume: %+v", shown, showVolume(v, time.Now()))
	}
	n.Name, v.Spec.Node = "a", "a"
	if shown := showNode(n); shown.CephPool != "" || shown.Pools[0].CephPool != "" || showVolume(v, time.Now()).CephPool != "" {
		t.Errorf("what is on a node: %+v", shown)
	}
}
