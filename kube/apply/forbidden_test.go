package apply

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// guard refuses to read StorageClasses while it is closed.
type guard struct {
	open atomic.Bool
	next http.RoundTripper
}

func (g *guard) RoundTrip(q *http.Request) (*http.Response, error) {
	if g.open.Load() || !strings.HasSuffix(q.URL.Path, "/storageclasses") {
		return g.next.RoundTrip(q)
	}
	answer := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no right"}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(answer)), Request: q,
	}, nil
}

func TestSet_ForbiddenKindDoesNotBlockTheOthersAndIsAppliedOnceAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		g := &guard{}
		config := r.api.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { g.next = next; return g })
		r.client = dynamic.NewForConfigOrDie(config)
		r.start()
		kind := schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}
		if r.set.Has(kind) {
			t.Error("a kind that may not be read is known")
		}
		r.apply(configMap("a", "1"))
		g.open.Store(true)
		wait.Until(r, "the kind", func() bool { return r.set.Has(kind) && r.wasNotified(Ref{}) })
		r.apply(class("fast", "csi.holdfast.dev"))
	})
}
