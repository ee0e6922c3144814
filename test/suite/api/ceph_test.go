package api_test

import (
	"context"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func cephPool() v1beta1.PoolSpec {
	return v1beta1.PoolSpec{Name: "block", Engine: v1beta1.EngineRBD, Ceph: &v1beta1.CephSpec{
		FSID: "11111111-2222-3333-4444-555555555555", Monitors: []string{"v2:10.0.0.1:3300", "v1:[fd00::1]:6789"}, Pool: "rbd",
		SecretRef: v1beta1.CephSecretReference{Name: "ceph"}, NodeSecretRef: v1beta1.CephSecretReference{Name: "ceph-node"},
	}}
}

func withPool(p v1beta1.PoolSpec) *v1beta1.StorageCluster {
	return &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{Pools: []v1beta1.PoolSpec{p}}}
}

func TestCephPool_FieldsGoWithTheirEngine(t *testing.T) {
	needServer(t)
	for name, test := range map[string]struct {
		change func(*v1beta1.PoolSpec)
		field  string // that is refused; none where it is taken
		says   string
	}{
		"an image": {func(*v1beta1.PoolSpec) {}, "", ""},
		"a directory": {func(p *v1beta1.PoolSpec) {
			p.Engine, p.Ceph.Pool, p.Ceph.Filesystem = v1beta1.EngineCephFS, "", "cephfs"
		}, "", ""},
		"all that there can be": {func(p *v1beta1.PoolSpec) {
			p.Overcommit, p.Reserved, p.Ceph.Namespace, p.Ceph.DataPool, p.Ceph.Secure = "2", "5%", "n", "d", true
		}, "", ""},
		"no secret of nodes":     {func(p *v1beta1.PoolSpec) { p.Ceph.NodeSecretRef.Name = "" }, "", ""},
		"no cluster":             {func(p *v1beta1.PoolSpec) { p.Ceph = nil }, "spec.pools[0].ceph", "RBD and CephFS"},
		"no engine":              {func(p *v1beta1.PoolSpec) { p.Engine = "" }, "spec.pools[0].ceph", "give one of these"},
		"an engine of nodes":     {func(p *v1beta1.PoolSpec) { p.Engine = v1beta1.EngineDirectory }, "spec.pools[0].ceph", ""},
		"RBD without a pool":     {func(p *v1beta1.PoolSpec) { p.Ceph.Pool = "" }, "spec.pools[0].ceph.pool", "RBD needs it"},
		"CephFS with a pool":     {func(p *v1beta1.PoolSpec) { p.Engine, p.Ceph.Filesystem = v1beta1.EngineCephFS, "f" }, "spec.pools[0].ceph.pool", "one of them"},
		"CephFS without its own": {func(p *v1beta1.PoolSpec) { p.Engine, p.Ceph.Pool = v1beta1.EngineCephFS, "" }, "spec.pools[0].ceph.filesystem", "CephFS needs it"},
		"a path":                 {func(p *v1beta1.PoolSpec) { p.Path = "/srv/a" }, "spec.pools[0].ceph", "leave them out"},
		"a device":               {func(p *v1beta1.PoolSpec) { p.Devices = &v1beta1.DeviceSelector{Model: "x"} }, "spec.pools[0].ceph", ""},
		"nodes": {func(p *v1beta1.PoolSpec) {
			p.NodeSelectorTerms = []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "a", Operator: core.NodeSelectorOpExists}}}}
		}, "spec.pools[0].ceph", ""},
		"a name that ends with -":  {func(p *v1beta1.PoolSpec) { p.Name = "a-" }, "spec.pools[0].name", "must not end with -"},
		"a monitor by its name":    {func(p *v1beta1.PoolSpec) { p.Ceph.Monitors = []string{"v2:mon.example:3300"} }, "spec.pools[0].ceph.monitors[0]", "v2:10.0.0.1:3300"},
		"a monitor without a port": {func(p *v1beta1.PoolSpec) { p.Ceph.Monitors = []string{"v2:10.0.0.1"} }, "spec.pools[0].ceph.monitors[0]", ""},
		"no monitor":               {func(p *v1beta1.PoolSpec) { p.Ceph.Monitors = []string{} }, "spec.pools[0].ceph.monitors", ""},
		"what is no fsid":          {func(p *v1beta1.PoolSpec) { p.Ceph.FSID = "mine" }, "spec.pools[0].ceph.fsid", "ceph fsid"},
		"secure without v2":        {func(p *v1beta1.PoolSpec) { p.Ceph.Secure, p.Ceph.Monitors = true, []string{"v1:10.0.0.1:6789"} }, "spec.pools[0].ceph.secure", "v2"},
		"client. before a user":    {func(p *v1beta1.PoolSpec) { p.Ceph.User = "client.admin" }, "spec.pools[0].ceph.user", "leave out client."},
		"one user for both":        {func(p *v1beta1.PoolSpec) { p.Ceph.User, p.Ceph.NodeUser = "a", "a" }, "spec.pools[0].ceph.nodeUser", "another user"},
		"the default for both":     {func(p *v1beta1.PoolSpec) { p.Ceph.User = "holdfast-node" }, "spec.pools[0].ceph.nodeUser", "another user"},
		"one secret for both":      {func(p *v1beta1.PoolSpec) { p.Ceph.NodeSecretRef.Name = "ceph" }, "spec.pools[0].ceph.nodeSecretRef.name", "another secret"},
		"an option for the kernel": {func(p *v1beta1.PoolSpec) { p.Ceph.Pool = "rbd,key=x" }, "spec.pools[0].ceph.pool", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := cephPool()
			test.change(&p)
			err := createCluster(t, withPool(p))
			if test.field == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if mustRefuse(t, err, test.field); err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q is not in %v", test.says, err)
			}
		})
	}
}

func TestCephPool_WhereItsVolumesAreCannotBeChanged(t *testing.T) {
	needServer(t)
	clusters := client.HoldfastV1beta1().StorageClusters()
	first := withPool(cephPool())
	first.Name = "ceph-of-the-api-suite"
	made, err := clusters.Create(t.Context(), first, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := clusters.Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for name, test := range map[string]struct {
		change func(*v1beta1.StorageClusterSpec)
		field  string // that is refused; none where it is taken
	}{
		"monitors":      {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.Monitors = []string{"v2:10.0.0.9:3300"} }, ""},
		"users":         {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.User, s.Pools[0].Ceph.NodeUser = "a", "b" }, ""},
		"secrets":       {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.SecretRef.Name = "other" }, ""},
		"a data pool":   {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.DataPool = "wide" }, ""},
		"another pool":  {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Name = "other"; s.Pools[0].Ceph.Pool = "other" }, ""},
		"the cluster":   {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.FSID = "99999999-2222-3333-4444-555555555555" }, "spec.pools[0].ceph.fsid"},
		"the pool":      {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.Pool = "other" }, "spec.pools[0].ceph.pool"},
		"the namespace": {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.Namespace = "other" }, "spec.pools[0].ceph.namespace"},
		"the engine": {func(s *v1beta1.StorageClusterSpec) {
			p := &s.Pools[0]
			p.Engine, p.Ceph = "", nil
		}, "spec.pools[0].ceph"},
	} {
		t.Run(name, func(t *testing.T) {
			next := made.DeepCopy()
			test.change(&next.Spec)
			_, err := clusters.Update(t.Context(), next, metav1.UpdateOptions{DryRun: dryRun})
			if test.field != "" {
				mustRefuse(t, err, test.field)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
