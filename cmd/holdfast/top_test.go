package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/report/top"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// proxied is an API server with a proxy to pods, which answer with the given functions, and the flags to reach it.
func proxied(t *testing.T, api *miniapi.Server, pods map[string]http.HandlerFunc) []string {
	t.Helper()
	server := inFront(t, api, func(w http.ResponseWriter, r *http.Request) bool {
		for pod, answer := range pods {
			namespace, name, _ := strings.Cut(pod, "/")
			if r.URL.Path == "/api/v1/namespaces/"+namespace+"/pods/http:"+name+":9090/proxy/metrics" {
				answer(w, r)
				return true
			}
		}
		return false
	})
	return append(at(t, server), "--interval", "100ms")
}

// counts serves counters of volumes that grow by what is given with each answer.
func counts(growth map[string]int) http.HandlerFunc {
	var answers atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		n := int(answers.Add(1))
		var b strings.Builder
		b.WriteString("# TYPE holdfast_build_info gauge\nholdfast_build_info 1\n")
		for metric, factor := range map[string]int{"reads": 1, "read_bytes": 4096, "writes": 2, "written_bytes": 8192} {
			fmt.Fprintf(&b, "# TYPE holdfast_volume_%s_total counter\n", metric)
			for volume, by := range growth {
				fmt.Fprintf(&b, "holdfast_volume_%s_total{pool=\"fast\",volume=%q} %d\n", metric, volume, 1000+n*by*factor)
			}
		}
		fmt.Fprint(w, b.String())
	}
}

// used is an API with volumes on two nodes and an NFS server, and pods that use them.
func used(t *testing.T) *miniapi.Server {
	t.Helper()
	api := miniapi.New(t)
	for _, name := range []string{"a", "b", "team.files.nfs.holdfast.dev"} {
		pools := []v1beta1.Pool{{Name: "fast", Engine: v1beta1.EngineImage}, {Name: "dirs", Engine: v1beta1.EngineDirectory}}
		wait.Put(t, &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.StorageNodeStatus{Pools: pools}}, kindsOf(api).StorageNodes())
	}
	for _, v := range [][4]string{
		{"pvc-1", "shop/orders", "a", "fast"},
		{"pvc-2", "shop/images", "b", "fast"},
		{"pvc-3", "shop/files", "a", "dirs"},
		{"pvc-4", "bank/old", "a", "fast"},
		{"pvc-5", "bank/shared", "team.files.nfs.holdfast.dev", "fast"},
		{"pvc-6", "shop/unused", "a", "dirs"},
	} {
		wait.Put(t, aVolume(v[0], v[1], v[2], v[3], "1Gi", "0", ""), kindsOf(api).Volumes())
	}
	putPod(t, api, "holdfast-system", "holdfast-node-1", "a", ofNode)
	putPod(t, api, "holdfast-system", "holdfast-node-2", "b", ofNode)
	putPod(t, api, "evil", "holdfast-node-x", "b", ofNode)
	putPod(t, api, "shop", "orders-0", "a", nil, "orders", "files")
	putPod(t, api, "shop", "orders-1", "a", nil, "orders")
	putPod(t, api, "bank", "web", "b", nil, "shared")
	// Bound to another claim than it was made for.
	pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-4"}, Status: core.PersistentVolumeStatus{Phase: core.VolumeBound}}
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: v1beta1.DriverName, VolumeHandle: "pvc-4"}
	pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "bank", Name: "new"}
	wait.Put(t, pv, coreOf(api).PersistentVolumes())
	return api
}

// reported is what top prints as JSON.
func reported(t *testing.T, args ...string) *top.Report {
	t.Helper()
	out := check.Got(call(t, append(append([]string{"top"}, args...), "-o", "json")...))(t)
	r := &top.Report{}
	if err := json.Unmarshal([]byte(out), r); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return r
}

func names(r *top.Report) string {
	var all []string
	for _, row := range r.Rows {
		all = append(all, row.Name)
	}
	return strings.Join(all, " ")
}

func TestTop_ShowsVolumesWithClaimPodAndNodeByTheirTraffic(t *testing.T) {
	refuse := func(http.ResponseWriter, *http.Request) { t.Error("a pod in another namespace was asked") }
	flags := proxied(t, used(t), map[string]http.HandlerFunc{
		"holdfast-system/holdfast-node-1": counts(map[string]int{"pvc-1": 100, "pvc-4": 5000, "pvc-5": 1e6}), // of which pvc-5 is not its own
		"holdfast-system/holdfast-node-2": counts(map[string]int{"pvc-2": 0}),
		"team/nfs-files-0":                counts(map[string]int{"pvc-5": 10}),
		"evil/holdfast-node-x":            refuse,
	})
	r := reported(t, flags...)
	if got := names(r); got != "pvc-4 pvc-1 pvc-5 pvc-2 pvc-3" || len(r.Silent) != 0 || r.Idle != 1 {
		t.Fatalf("%s: %+v", got, r)
	}
	rates, first := r.Rows[1].Rates, r.Rows[1]
	if rates.ReadBytes != 4096*rates.Reads || rates.WrittenBytes != 8192*rates.Reads || rates.Writes != 2*rates.Reads || rates.Reads <= 0 || rates.Reads > 100/0.1 {
		t.Errorf("%+v", rates)
	}
	if first.ClaimRef.String() != "shop/orders" || fmt.Sprint(first.PodRefs) != "[{shop orders-0} {shop orders-1}]" || first.Node != "a" || first.Pool != "fast" {
		t.Errorf("%+v", first)
	}
	if r.Rows[0].ClaimRef.String() != "bank/new" {
		t.Errorf("the claim of pvc-4 is %s", r.Rows[0].ClaimRef)
	}
	if last := r.Rows[4]; last.Rates != nil || !strings.Contains(last.Why, "engine Directory") {
		t.Errorf("a directory: %+v", last)
	}
	out, err := call(t, append([]string{"top", "volumes"}, flags...)...)
	for _, want := range []string{"CLAIM", "READ/s", "bank/new", "orders-0 +1", "\n-: the kernel counts for block devices", "not in use: 1"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v, without %q:\n%s", err, want, out)
		}
	}
	for line, want := range map[string]string{"-n shop": "pvc-1 pvc-2 pvc-3", "--node team/files": "pvc-5", "--claim new": "pvc-4", "--pool dirs": "pvc-3"} {
		if got := names(reported(t, append(strings.Fields(line), flags...)...)); got != want {
			t.Errorf("%s: %s", line, got)
		}
	}
	if got := names(reported(t, append([]string{"nodes"}, flags...)...)); got != "a team.files.nfs.holdfast.dev b" {
		t.Errorf("nodes: %s", got)
	}
	if got := names(reported(t, append([]string{"pools", "--node", "a"}, flags...)...)); got != "fast dirs" {
		t.Errorf("pools: %s", got)
	}
}

func TestTop_NodeThatDoesNotAnswerIsNamedAndTheOthersAreShown(t *testing.T) {
	api := used(t)
	flags := proxied(t, api, map[string]http.HandlerFunc{
		"holdfast-system/holdfast-node-1": counts(map[string]int{"pvc-1": 100}),
		"holdfast-system/holdfast-node-2": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "it is down", http.StatusServiceUnavailable)
		},
		"team/nfs-files-0": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "<html>") },
	})
	r := reported(t, flags...)
	if names(r) != "pvc-1 pvc-3" || len(r.Silent) != 2 || r.Silent[0].Node != "b" || !strings.Contains(r.Silent[0].Message, "holdfast-node-2") ||
		r.Silent[1].Node != "team.files.nfs.holdfast.dev" || !strings.Contains(r.Silent[1].Message, "cannot be read") {
		t.Errorf("%+v", r)
	}
	check.OK(t, coreOf(api).Pods("holdfast-system").Delete(t.Context(), "holdfast-node-2", metav1.DeleteOptions{}))
	if r := reported(t, flags...); r.Silent[0].Message != "no pod of it runs in namespace holdfast-system" {
		t.Errorf("%+v", r.Silent)
	}
}

func TestTop_WithoutTheRightToAskPodsSaysWhichIsMissing(t *testing.T) {
	forbid := refuse(http.StatusForbidden, "Forbidden")
	flags := proxied(t, used(t), map[string]http.HandlerFunc{"holdfast-system/holdfast-node-1": forbid, "holdfast-system/holdfast-node-2": forbid, "team/nfs-files-0": forbid})
	_, err := call(t, append([]string{"top"}, flags...)...)
	if exitCode(err) != 3 || !strings.Contains(err.Error(), "get on pods/proxy in namespace holdfast-system") && !strings.Contains(err.Error(), "get on pods/proxy in namespace team") {
		t.Errorf("got %v", err)
	}
}

func TestTop_OfThisHostReadsTheKernel(t *testing.T) {
	hostfs.RequireRoot(t)
	b, pool := serve(t)
	v := check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: "v", Mode: backend.Block, Size: backend.Size{Required: 64 << 20}, Labels: map[string]string{
		"csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pvc/name": "orders",
	}}))(t)
	loop := check.Got(nodeops.AttachLoop(t.Context(), v.Access.Image, nodeops.LoopOptions{Autoclear: true}))(t)
	defer loop.Close()
	device := check.Got(os.OpenFile(loop.Path, os.O_WRONLY|unix.O_SYNC, 0))(t)
	defer device.Close()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { // writes until the command has ended
		defer close(ended)
		for page := make([]byte, 64<<10); ; {
			select {
			case <-done:
				return
			default:
				if _, err := device.WriteAt(page, 0); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	r := reported(t, "--pool", pool, "--interval", "200ms")
	close(done)
	<-ended
	if len(r.Rows) != 1 || r.Rows[0].Name != "v" || r.Rows[0].ClaimRef.String() != "shop/orders" || r.Rows[0].Rates.WrittenBytes <= 0 || r.Rows[0].Rates.Writes <= 0 || r.Rows[0].Node != "" {
		t.Errorf("%+v", r)
	}
	if r := reported(t, "nodes", "--pool", pool, "--interval", "100ms"); len(r.Rows) != 1 || r.Rows[0].Volumes != 1 {
		t.Errorf("%+v", r)
	}
}

// serving is the pod of node a.
func serving(growth map[string]int) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"holdfast-system/holdfast-node-1": counts(growth)}
}
