package web

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestReport_HasAllThatIsInTheClusterInTheOrderOfItsNames(t *testing.T) {
	inBubble(t, func(r *rig) {
		server, ceph := v1beta1.NodeOfServer("shop/files"), v1beta1.NodeOfCephPool("block")
		r.node("b", metav1.ConditionUnknown, "fast", "gone")
		r.node("a", metav1.ConditionTrue, "slow", "fast")
		r.node(server, metav1.ConditionTrue, "volumes")
		r.node(ceph, metav1.ConditionFalse, "block")
		bad := []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: "Damaged", Message: "the image is too short"}}
		r.volume("v3", server, "volumes", v1beta1.VolumeStatus{})
		r.volume("v1", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Size: gib(3), Used: gib(1), Conditions: bad})
		r.volume("v2", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseFailed, Error: &v1beta1.Error{Code: v1beta1.ErrorExhausted, Message: "no room"}})
		r.volume("v4", ceph, "block", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.snapshot("s2", "v3", "b", v1beta1.SnapshotStatus{Phase: v1beta1.PhaseReady, Pool: "fast"})
		r.snapshot("s1", "v1", "a", v1beta1.SnapshotStatus{})
		r.nfsServer("shop", "files", v1beta1.NFSServerStatus{Phase: v1beta1.NFSRunning, Endpoint: "10.0.0.1:2049", ClaimName: "data", Node: "a", Capacity: gib(9), Promised: gib(4), Exports: 3, Clients: 2})
		r.nfsServer("games", "files", v1beta1.NFSServerStatus{Phase: v1beta1.NFSDegraded})
		r.warn("first", "Early", time.Now().Add(-time.Hour))
		r.warn("second", "Late", time.Now())
		r.open()
		got := r.until("all is known", func(report Report) bool { return len(report.Hidden) == 0 })

		if c := got.Cluster; c == nil || c.Name != "holdfast" || c.Usage != (Usage{400 << 30, 160 << 30, 120 << 30, 240 << 30}) { // what a server stores is within a volume, and a pool out of reach stores nothing
			r.Errorf("the cluster: %+v", c)
		}
		var lines []string
		for _, n := range got.Nodes {
			lines = append(lines, fmt.Sprint("node ", n.Name, " ", n.ServerRef, " ", n.CephPool, " ", n.Phase, " ", n.Ready))
			for _, p := range n.Pools {
				lines = append(lines, fmt.Sprint("pool ", p.Node, " ", p.Name, " ", p.ServerRef, " ", p.CephPool, " ", p.Message))
			}
		}
		for _, v := range got.Volumes {
			lines = append(lines, fmt.Sprint("volume ", v.Name, " ", v.ClaimRef, " ", v.Node, " ", v.ServerRef, " ", v.CephPool, " ", v.Phase, " ", v.Size>>30, " ", v.Healthy, " ", v.Attention, " ", v.Message))
		}
		for _, s := range got.Snapshots {
			lines = append(lines, fmt.Sprint("snapshot ", s.Name, " ", s.SourceRef.Name, " ", s.Node, " ", s.Pool, " ", s.Phase))
		}
		for _, s := range got.NFSServers {
			lines = append(lines, fmt.Sprint("server ", s.Namespace, "/", s.Name, " ", s.ClaimName, " ", s.Capacity>>30, " ", s.Level))
		}
		for _, o := range got.Operations {
			lines = append(lines, fmt.Sprint("operation ", o.Verb, " ", o.Kind, " ", o.Name))
		}
		for _, e := range got.Events {
			lines = append(lines, fmt.Sprint("event ", e.InvolvedObject, " ", e.Reason))
		}
		want := []string{
			"node a   Ready true", "pool a slow   ", "pool a fast   ", "node b   Unknown false", "pool b fast   ", "pool b gone   its disk is not there",
			"node " + ceph + "  block NotReady false", "pool " + ceph + " block  block ", "node " + server + " shop/files  Ready true", "pool " + server + " volumes shop/files  ",
			"volume v1 shop/v1 a   Ready 3 false true the image is too short", "volume v2 shop/v2 a   Failed 0 true true no room",
			"volume v3 shop/v3 " + server + " shop/files  Pending 0 true false ", "volume v4 shop/v4 " + ceph + "  block Ready 0 true false ",
			"snapshot s1 v1 a  Pending", "snapshot s2 v3 b fast Ready",
			"server games/files  0 problem", "server shop/files data 9 fine",
			"operation Create Snapshot s1", "operation Create Volume v3",
			"event Pod shop/second Late", "event Pod shop/first Early",
		}
		if !slices.Equal(lines, want) {
			r.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		if !slices.ContainsFunc(got.Findings, func(f facts.Finding) bool { return f.Kind == "StorageNode" && f.Name == "b" }) {
			r.Errorf("findings: %+v", got.Findings)
		}
	})
}

func TestReport_KindsThatMayNotBeReadAreHiddenWithTheReasonUntilTheyMay(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.warn("first", "Early", time.Now())
		r.nfsServer("shop", "files", v1beta1.NFSServerStatus{})
		job, upgrade := &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job"}}, &v1beta1.StorageUpgrade{ObjectMeta: metav1.ObjectMeta{Name: "next"}}
		check.Got(r.ours.HoldfastV1beta1().NodeJobs().Create(r.Context(), job, metav1.CreateOptions{}))(r)
		check.Got(r.ours.HoldfastV1beta1().StorageUpgrades().Create(r.Context(), upgrade, metav1.CreateOptions{}))(r)
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
		got := r.until("all four are hidden", func(report Report) bool { return len(report.Hidden) == 4 })
		if got.Events != nil || got.NFSServers != nil || known() != [4]int{} {
			r.Errorf("an empty list says that there is nothing: %+v", got)
		}
		for _, field := range []string{"events", "nfsServers", "nodeJobs", "storageUpgrades"} {
			if why := got.Hidden[field]; !strings.Contains(why, "apply the manifest") || !strings.Contains(why, "no role has it") {
				r.Errorf("%s: %q", field, why)
			}
		}
		r.warn("second", "Late", time.Now())
		r.deny(nil)
		got = r.until("all kinds are known again", func(report Report) bool { return len(report.Hidden) == 0 && known() == [4]int{2, 1, 1, 1} })
		if len(got.Events) != 2 || len(got.NFSServers) != 1 {
			r.Errorf("got %+v", got)
		}
		if lines := r.log.lines("the API cannot show a kind"); len(lines) != 4 {
			r.Errorf("it was logged %d times: %v", len(lines), lines)
		}
	})
}

func TestReport_ThatHasNotChangedIsNotSentAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		for i := range 9 { // in an order that is not that of the cache
			r.volume(fmt.Sprint("v", i), "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseFailed})
			r.warn(fmt.Sprint("e", i), "Reason", time.Now())
		}
		r.open()
		r.until("all is known", func(report Report) bool {
			return len(report.Volumes) == 9 && len(report.Events) == 9 && len(report.Hidden) == 0
		})
		tag := r.get(reportPath).header.Get("ETag")
		q := r.request(http.MethodGet, reportPath, nil)
		q.Header.Set("If-None-Match", tag)
		for range 5 {
			if a := r.ask(q); a.status != http.StatusNotModified || len(a.body) > 0 || a.header.Get("ETag") != tag {
				r.Errorf("%d with %d bytes", a.status, len(a.body))
			}
		}
		r.volume("v9", "a", "fast", v1beta1.VolumeStatus{})
		wait.Until(r, "the other volume is in the answer", func() bool { return r.ask(q).status == http.StatusOK })
	})
}

func TestReport_TellsHowOldItMayBe(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.open()
		age := func() string { return r.get(reportPath).header.Get("Age") }
		if age := age(); age != "" {
			r.Errorf("before a Lease is known: %q", age)
		}
		leases := r.theirs.CoordinationV1().Leases(namespace)
		lease := check.Got(leases.Create(r.Context(), &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "holdfast-node-a", Namespace: namespace}}, metav1.CreateOptions{}))(r)
		wait.Until(r, "the Lease is known", func() bool { return age() == "0" })
		<-time.After(90 * time.Second)
		if age := age(); age != "90" {
			r.Errorf("after 90 s: %q", age)
		}
		lease.Annotations = map[string]string{"renewed": "true"}
		check.Got(leases.Update(r.Context(), lease, metav1.UpdateOptions{}))(r)
		wait.Until(r, "it is renewed", func() bool { return age() == "0" })
	})
}

func TestReport_CostsTheAPIServerNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a", metav1.ConditionTrue, "fast")
		r.open()
		before := map[string]int{} // the secrets are that of the user and that of the certificate
		wait.Until(r, "everything is watched, and the certificate kept", func() bool {
			for what, times := range r.api.Requests() {
				before[what] += times
			}
			// Before the watch has shown the certificate, another change has it requested once more, which the API server refuses.
			own, _, _ := r.server.identity.own.Get(types.NamespacedName{Namespace: namespace, Name: ownSecret})
			return own != nil && before["watch secrets"] == 2 && len(r.server.known().Hidden) == 0 && before["watch leases"] == 1
		})
		for range 20 {
			r.report()
		}
		if asked := r.api.Requests(); len(asked) > 0 {
			r.Errorf("the API server was asked: %v", asked)
		}
	})
}
