package kube

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestSecret_OfAStorageClusterIsInItsNamespaceOrTheDefault(t *testing.T) {
	names := func(ref *v1beta1.SecretReference) *v1beta1.StorageCluster {
		return &v1beta1.StorageCluster{Spec: v1beta1.StorageClusterSpec{SecretRef: ref}}
	}
	for name, c := range map[string]struct {
		cluster *v1beta1.StorageCluster
		want    types.NamespacedName
	}{
		"no StorageCluster": {nil, types.NamespacedName{}},
		"none":              {names(nil), types.NamespacedName{}},
		"a name":            {names(&v1beta1.SecretReference{Name: "a"}), types.NamespacedName{Namespace: "ours", Name: "a"}},
		"a namespace too":   {names(&v1beta1.SecretReference{Namespace: "other", Name: "a"}), types.NamespacedName{Namespace: "other", Name: "a"}},
	} {
		if got := SecretName(c.cluster, "ours"); got != c.want {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

type secretRig struct {
	*testing.T
	client  kubernetes.Interface
	watch   *SecretWatch
	changed chan struct{}
}

func newSecretRig(t *testing.T, client kubernetes.Interface) *secretRig {
	r := &secretRig{T: t, client: client, changed: make(chan struct{}, 1)}
	r.watch = NewSecretWatch(client, func() {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	})
	t.Cleanup(r.watch.Stop)
	return r
}

func (r *secretRig) create(name types.NamespacedName, value string) {
	r.Helper()
	secret := &core.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Data: map[string][]byte{"key": []byte(value)}}
	check.Got(r.client.CoreV1().Secrets(name.Namespace).Create(r.Context(), secret, metav1.CreateOptions{}))(r)
}

// eventually waits until a secret has the expected content, and reads it only after a notification.
func (r *secretRig) eventually(name types.NamespacedName, is func(secret *core.Secret, known bool, refusal error) bool) {
	r.Helper()
	late := time.After(time.Minute)
	for !is(r.watch.Get(name)) {
		select {
		case <-r.changed:
		case <-late:
			r.Fatal("no notification came")
		}
	}
}

func holds(value string) func(*core.Secret, bool, error) bool {
	return func(s *core.Secret, known bool, refusal error) bool {
		return known && refusal == nil && s != nil && string(s.Data["key"]) == value
	}
}

func isAbsent(s *core.Secret, known bool, refusal error) bool {
	return known && refusal == nil && s == nil
}

func TestSecret_IsFollowedThroughItsChangesAndThenAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := types.NamespacedName{Namespace: "one", Name: "a"}, types.NamespacedName{Namespace: "two", Name: "b"}
		r := newSecretRig(t, kubernetes.NewForConfigOrDie(miniapi.New(t).Config()))
		r.create(b, "other")
		if s, known, refusal := r.watch.Get(types.NamespacedName{}); !isAbsent(s, known, refusal) {
			t.Errorf("of no name: %v, %t, %v", s, known, refusal)
		}
		if _, known, refusal := r.watch.Get(a); known || refusal != nil {
			t.Errorf("before it was read: %t, %v", known, refusal)
		}
		r.eventually(a, isAbsent)
		r.create(a, "first")
		r.eventually(a, holds("first"))
		check.OK(t, r.client.CoreV1().Secrets(a.Namespace).Delete(t.Context(), a.Name, metav1.DeleteOptions{}))
		r.eventually(a, isAbsent)
		r.eventually(b, holds("other"))
	})
}

// forbidding refuses to read secrets, and ends watches of them, while it is on.
type forbidding struct {
	http.RoundTripper
	on *atomic.Bool
}

func (f forbidding) RoundTrip(q *http.Request) (*http.Response, error) {
	if !f.on.Load() || q.Method != http.MethodGet {
		return f.RoundTripper.RoundTrip(q)
	}
	return answer(q, http.StatusForbidden, metav1.StatusReasonForbidden), nil
}

func TestSecret_ForbiddenReadIsReportedUntilItIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := miniapi.New(t)
		config, forbidden := api.Config(), new(atomic.Bool)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return forbidding{next, forbidden} })
		r := newSecretRig(t, kubernetes.NewForConfigOrDie(config))
		name := types.NamespacedName{Namespace: "one", Name: "a"}
		r.create(name, "first")
		isForbidden := func(was bool) func(*core.Secret, bool, error) bool {
			return func(_ *core.Secret, known bool, refusal error) bool {
				return known == was && apierrors.IsForbidden(refusal)
			}
		}
		forbidden.Store(true)
		r.eventually(name, isForbidden(false))
		forbidden.Store(false)
		r.eventually(name, holds("first"))
		forbidden.Store(true)
		api.BreakWatches()
		r.eventually(name, isForbidden(true))
		r.create(types.NamespacedName{Namespace: "one", Name: "b"}, "other") // the cluster goes on, and this secret stays as it is
		forbidden.Store(false)
		wait.Until(t, "the secret that may be read again", func() bool { return holds("first")(r.watch.Get(name)) })
	})
}
