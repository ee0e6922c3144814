package kube

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func job(uid types.UID, version string) *v1beta1.NodeJob {
	return &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, ResourceVersion: version}}
}

func TestWritten_NewerOfCacheAndWriteCounts(t *testing.T) {
	for name, c := range map[string]struct {
		written, cached *v1beta1.NodeJob
		want            string
	}{
		"nothing was written":             {nil, job("1", "5"), "5"},
		"the cache is behind":             {job("1", "10"), job("1", "9"), "10"},
		"the cache has caught up":         {job("1", "10"), job("1", "10"), "10"},
		"another wrote later":             {job("1", "10"), job("1", "11"), "11"},
		"the cache has a new incarnation": {job("1", "10"), job("2", "9"), "9"},
		"a version is no number":          {job("1", "x"), job("1", "9"), "9"},
	} {
		t.Run(name, func(t *testing.T) {
			var o Written[*v1beta1.NodeJob]
			if c.written != nil {
				o.Wrote(c.written)
			}
			if have := o.Newest(c.cached).ResourceVersion; have != c.want {
				t.Errorf("got version %s, want %s", have, c.want)
			}
		})
	}
}

func TestWritten_ObjectSeenByTheCacheIsForgotten(t *testing.T) {
	var o Written[*v1beta1.NodeJob]
	o.Wrote(job("1", "10"))
	o.Newest(job("1", "11"))
	if have := o.Newest(job("1", "9")).ResourceVersion; have != "9" {
		t.Errorf("got version %s", have)
	}
}

func TestWritten_ObjectsOfOneNameInTwoNamespacesAreDistinct(t *testing.T) {
	server := func(namespace, version string) *v1beta1.NFSServer {
		return &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "1", ResourceVersion: version}}
	}
	var o Written[*v1beta1.NFSServer]
	o.Wrote(server("one", "10"))
	if have := o.Newest(server("two", "5")); have.Namespace != "two" || have.ResourceVersion != "5" {
		t.Errorf("got that of %s, version %s", have.Namespace, have.ResourceVersion)
	}
	o.Forget("two/a")
	if have := o.Newest(server("one", "9")).ResourceVersion; have != "10" {
		t.Errorf("got version %s", have)
	}
	o.Forget("one/a")
	if have := o.Newest(server("one", "9")).ResourceVersion; have != "9" {
		t.Errorf("after it was forgotten: got version %s", have)
	}
}
