package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

// writerRig has an NFSServer that exists, and its Writer.
type writerRig struct {
	*testing.T
	client holdfast.Interface
	writer *Writer[*v1beta1.NFSServer, v1beta1.NFSServerStatus]
	server *v1beta1.NFSServer
}

func newWriterRig(t *testing.T) *writerRig {
	client := holdfast.NewForConfigOrDie(miniapi.New(t).Config())
	r := &writerRig{T: t, client: client, writer: &Writer[*v1beta1.NFSServer, v1beta1.NFSServerStatus]{
		Client: func(namespace string) Client[*v1beta1.NFSServer] {
			return client.HoldfastV1beta1().NFSServers(namespace)
		},
		Status:  func(o *v1beta1.NFSServer) *v1beta1.NFSServerStatus { return &o.Status },
		Manager: "test",
	}}
	var err error
	r.server, err = client.HoldfastV1beta1().NFSServers("shop").Create(t.Context(), &v1beta1.NFSServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "files", Finalizers: []string{"example.com/other"}},
	}, metav1.CreateOptions{})
	check.OK(t, err)
	return r
}

// expect fails unless the server has these finalizers and this phase, both in the API server and in what the Writer
// remembers.
func (r *writerRig) expect(phase v1beta1.NFSPhase, finalizers ...string) *v1beta1.NFSServer {
	r.Helper()
	now := check.Got(r.client.HoldfastV1beta1().NFSServers("shop").Get(r.Context(), "files", metav1.GetOptions{}))(r)
	if now.Status.Phase != phase || !slices.Equal(now.Finalizers, finalizers) {
		r.Errorf("the server is %q with %v, want %q with %v", now.Status.Phase, now.Finalizers, phase, finalizers)
	}
	if newest := r.writer.Newest(r.server); newest.ResourceVersion != now.ResourceVersion {
		r.Errorf("version %s is remembered, want %s", newest.ResourceVersion, now.ResourceVersion)
	}
	return now
}

// behind updates the server as another client.
func (r *writerRig) behind() {
	r.Helper()
	patch := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	check.Got(r.client.HoldfastV1beta1().NFSServers("shop").Patch(r.Context(), "files", types.MergePatchType, patch, metav1.PatchOptions{}))(r)
}

func TestWriter_FinalizerIsAddedAndRemovedOnceAndForeignOnesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWriterRig(t)
		held, err := r.writer.AddFinalizer(t.Context(), r.server, "ours")
		if err != nil || !slices.Equal(held.Finalizers, []string{"example.com/other", "ours"}) || len(r.server.Finalizers) != 1 {
			t.Fatalf("got %+v, %v, from %v", held, err, r.server.Finalizers)
		}
		r.expect("", "example.com/other", "ours")
		if again, err := r.writer.AddFinalizer(t.Context(), held, "ours"); err != nil || again != held {
			t.Errorf("added again: %+v, %v", again, err)
		}
		check.OK(t, r.writer.RemoveFinalizer(t.Context(), held, "ours"))
		now := r.expect("", "example.com/other")
		if err := r.writer.RemoveFinalizer(t.Context(), now, "ours"); err != nil {
			t.Errorf("removed again: %v", err)
		}
		r.expect("", "example.com/other")
	})
}

func TestWriter_FinalizerOfAnObjectWrittenByOthersIsAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWriterRig(t)
		r.behind()
		if _, err := r.writer.AddFinalizer(t.Context(), r.server, "ours"); !apierrors.IsConflict(err) {
			t.Errorf("added: %v", err)
		}
		if err := r.writer.RemoveFinalizer(t.Context(), r.server, "example.com/other"); !apierrors.IsConflict(err) {
			t.Errorf("removed: %v", err)
		}
		patch := r.client.HoldfastV1beta1().NFSServers("shop").Patch
		if removed, err := RemoveFinalizer(t.Context(), patch, r.server, "example.com/other", "test"); removed || !apierrors.IsConflict(err) {
			t.Errorf("removed without being remembered: %t, %v", removed, err)
		}
		if newest := r.writer.Newest(r.server); newest != r.server {
			t.Errorf("version %s is remembered of what was refused", newest.ResourceVersion)
		}
	})
}

func TestWriter_FinalizerIsRemovedFromAnObjectThatIsNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWriterRig(t)
		patch := r.client.HoldfastV1beta1().NFSServers("shop").Patch
		if removed, err := RemoveFinalizer(t.Context(), patch, r.server, "ours", "test"); removed || err != nil {
			t.Errorf("one that it does not have: %t, %v", removed, err)
		}
		if removed, err := RemoveFinalizer(t.Context(), patch, r.server, "example.com/other", "test"); !removed || err != nil {
			t.Errorf("got %t, %v", removed, err)
		}
		now, err := r.client.HoldfastV1beta1().NFSServers("shop").Get(t.Context(), "files", metav1.GetOptions{})
		if err != nil || len(now.Finalizers) != 0 {
			t.Errorf("got %+v, %v", now, err)
		}
	})
}

func TestWriter_StatusIsWrittenWhereItDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWriterRig(t)
		next := v1beta1.NFSServerStatus{Phase: v1beta1.NFSDegraded}
		written, changed, err := r.writer.WriteStatus(t.Context(), r.server, next)
		if err != nil || !changed || written.Status.Phase != v1beta1.NFSDegraded || r.server.Status.Phase != "" {
			t.Fatalf("got %+v, %t, %v, from %q", written, changed, err, r.server.Status.Phase)
		}
		r.expect(v1beta1.NFSDegraded, "example.com/other")
		r.behind()
		if same, changed, err := r.writer.WriteStatus(t.Context(), written, next); err != nil || changed || same != written {
			t.Errorf("the same again: %+v, %t, %v", same, changed, err)
		}
		if _, changed, err := r.writer.WriteStatus(t.Context(), written, v1beta1.NFSServerStatus{}); changed || !apierrors.IsConflict(err) {
			t.Errorf("over the write of another: %t, %v", changed, err)
		}
		gone := r.server.DeepCopy()
		gone.Name = "gone"
		if _, _, err := r.writer.WriteStatus(t.Context(), gone, next); !apierrors.IsNotFound(err) || IgnoreNotFound(err) != nil {
			t.Errorf("to one that is gone: %v", err)
		}
	})
}

func TestDeleteExactly_ErrorNamesTheKind(t *testing.T) {
	claim := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "nfs-data", UID: "u"}}
	err := DeleteExactly(t.Context(), func(context.Context, string, metav1.DeleteOptions) error { return errRefused }, claim)
	if want := "deleting PersistentVolumeClaim shop/nfs-data: refused"; !errors.Is(err, errRefused) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

var errRefused = errors.New("refused")
