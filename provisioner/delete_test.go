package provisioner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// released is a PersistentVolume whose claim is gone.
func released(t *testing.T, p *Provisioner, parameters map[string]string) *core.PersistentVolume {
	t.Helper()
	pv, _, err := p.Provision(t.Context(), options(parameters))
	if err != nil {
		t.Fatal(err)
	}
	pv.UID = "of-" + options(nil).PVC.UID
	pv.Annotations[v1beta1.ProvisionedByAnnotation] = p.Name
	pv.Status.Phase = core.VolumeReleased
	return pv
}

func isIgnored(err error) bool {
	_, is := err.(*controller.IgnoredError) //nolint:errorlint // as the library looks at it
	return is
}

func TestDelete_DeletedVolumeIsGoneAndCanBeDeletedAgain(t *testing.T) {
	s := newServer(t, quietClient())
	var forgotten []backend.ID
	s.config.Forget = func(_ context.Context, id backend.ID) error { forgotten = append(forgotten, id); return nil }
	p := s.made()
	pv := released(t, p, nil)
	for range 2 {
		if err := p.Delete(t.Context(), pv); err != nil {
			t.Fatal(err)
		}
	}
	if left := s.disk.volumes(); len(left) != 0 || len(p.journal.all()) != 0 {
		t.Errorf("left are %v, %v", left, p.journal.all())
	}
	if len(forgotten) != 4 || forgotten[0] != backend.ID(pv.Name) {
		t.Errorf("forgotten: %v", forgotten)
	}
}

func TestDelete_AVolumeOfALivingClaimIsRefusedByName(t *testing.T) {
	client := quietClient()
	s := newServer(t, client)
	p := s.made()
	pv := released(t, p, nil)
	claim := options(nil).PVC.DeepCopy()
	claim.Spec.VolumeName = pv.Name
	pv.Spec.ClaimRef = &core.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	claims := client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), pv); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "default/data") {
		t.Errorf("it answers %v", err)
	}
	if len(s.disk.volumes()) != 1 {
		t.Error("the data is gone")
	}
	if err := claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
		t.Errorf("after the claim: %v, %v", err, s.disk.volumes())
	}
}

func TestDelete_RetainedDataStaysAndIsReported(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, map[string]string{"onDelete": "retain"})
	s.disk.Write(backend.ID(pv.Name), []byte("precious"))
	for range 2 {
		if err := p.Delete(t.Context(), pv); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.disk.Read(backend.ID(pv.Name), 8); string(got) != "precious" {
		t.Errorf("the data is %q", got)
	}
	if written := s.events.with("Retained"); len(written) != 1 || !strings.Contains(written[0], "/"+pv.Name) || !strings.Contains(written[0], "storage/main") {
		t.Errorf("the events are %v", written)
	}
	if len(p.journal.all()) != 0 {
		t.Error("it is in the journal, and would be removed")
	}
}

func TestDelete_ArchivedDataIsASnapshotAndNoExport(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, map[string]string{"onDelete": "archive"})
	s.disk.Write(backend.ID(pv.Name), []byte("precious"))
	fails := errors.New("the server stumbles")
	for _, at := range []string{"snapshot", "delete", "deleted"} {
		s.disk.hook(func(_ context.Context, call string) error {
			if call == at {
				return fails
			}
			return nil
		})
		if err := p.Delete(t.Context(), pv); !errors.Is(err, fails) {
			t.Fatalf("at %s: %v", at, err)
		}
	}
	s.disk.hook(nil)
	if err := p.Delete(t.Context(), pv); err != nil {
		t.Fatal(err)
	}
	snapshots, err := s.disk.ListSnapshots(t.Context())
	if err != nil || len(snapshots) != 1 || len(s.disk.volumes()) != 0 {
		t.Fatalf("snapshots %v, volumes %v, %v", snapshots, s.disk.volumes(), err)
	}
	if _, err := s.disk.Restore(t.Context(), snapshots[0].ID, backend.VolumeSpec{Name: "back"}); err != nil {
		t.Fatal(err)
	}
	if got := s.disk.Read("back", 8); string(got) != "precious" {
		t.Errorf("the data is %q", got)
	}
	if written := s.events.with("Archived"); len(written) != 1 || !strings.Contains(written[0], string(snapshots[0].ID)) {
		t.Errorf("the events are %v", written)
	}
}

// The label decides, since who may edit a PersistentVolume need not be who made the class.
func TestDelete_PolicyOfTheDataIsReadFromTheVolume(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, map[string]string{"onDelete": "retain"})
	pv.Annotations[v1beta1.OnDeleteAnnotation] = "delete"
	if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 1 {
		t.Errorf("volumes %v, %v", s.disk.volumes(), err)
	}
}

func TestDelete_PersistentVolumeOfAnotherServerIsLeftAloneAndReportedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*core.PersistentVolume)
		says   string
	}{
		"of another server": {func(v *core.PersistentVolume) { v.Annotations[v1beta1.NFSServerAnnotation] = "storage/other" }, "storage/other"},
		"without an owner": {func(v *core.PersistentVolume) {
			v.Annotations = map[string]string{v1beta1.ProvisionedByAnnotation: v.Annotations[v1beta1.ProvisionedByAnnotation]}
		}, "unknown"},
		"of lost data": {func(v *core.PersistentVolume) {
			v.Name, v.Annotations[v1beta1.NFSVolumeAnnotation], v.Annotations[v1beta1.NFSStoreAnnotation] = "pvc-lost", "pvc-lost", "before"
		}, "before"},
	} {
		s := newServer(t, quietClient())
		p := s.made()
		pv := released(t, p, nil)
		test.change(pv)
		for range 3 {
			if err := p.Delete(t.Context(), pv); !isIgnored(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if written := s.events.with("LeftAlone"); len(written) != 1 || !strings.Contains(written[0], test.says) {
			t.Errorf("%s: the events are %v", name, written)
		}
		if len(s.disk.volumes()) != 1 {
			t.Errorf("%s: the volume is gone", name)
		}
	}
}

// While the other server is about to delete it, there is nothing to report.
func TestDelete_OtherServerIsGivenTime(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, nil)
	pv.Annotations[v1beta1.NFSServerAnnotation] = "storage/other"
	now := metav1.Now()
	pv.Status.LastPhaseTransitionTime = &now
	if err := p.Delete(t.Context(), pv); !isIgnored(err) || len(s.events.with("LeftAlone")) != 0 {
		t.Errorf("%v, the events are %v", err, s.events.with(""))
	}
	long := metav1.NewTime(now.Add(-p.Patience))
	pv.Status.LastPhaseTransitionTime = &long
	if err := p.Delete(t.Context(), pv); !isIgnored(err) || len(s.events.with("LeftAlone")) != 1 {
		t.Errorf("%v, the events are %v", err, s.events.with(""))
	}
}

func TestDelete_LocalDataIsDeletedThoughTheIdentityOfTheStoreIsLost(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, nil)
	s.config.StateDir = t.TempDir()
	again := s.made()
	if again.journal.store == p.journal.store {
		t.Fatal("two stores have one identity")
	}
	if err := again.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
		t.Errorf("volumes %v, %v", s.disk.volumes(), err)
	}
}

func TestDelete_ForgedPersistentVolumeDeletesNothing(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, nil)
	if _, err := s.disk.Memory.Create(t.Context(), backend.VolumeSpec{Name: "of-the-other-door"}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*core.PersistentVolume){
		"names another volume": func(v *core.PersistentVolume) { v.Name = "forged" },
		"names none":           func(v *core.PersistentVolume) { delete(v.Annotations, v1beta1.NFSVolumeAnnotation) },
		"names a path":         func(v *core.PersistentVolume) { v.Annotations[v1beta1.NFSVolumeAnnotation] = "../" + v.Name },
		"takes the name of a CSI": func(v *core.PersistentVolume) {
			v.Name, v.Annotations[v1beta1.NFSVolumeAnnotation] = "of-the-other-door", "of-the-other-door"
		},
	} {
		forged := pv.DeepCopy()
		change(forged)
		if err := p.Delete(t.Context(), forged); err == nil || isIgnored(err) || !strings.Contains(err.Error(), "nothing is deleted") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := s.disk.volumes(); len(left) != 2 {
		t.Errorf("left are %v", left)
	}
}

func TestDelete_DamagedVolumeIsDeletedByItsPersistentVolume(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, nil)
	p.Backend = damaged{s.disk}
	if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
		t.Errorf("volumes %v, %v", s.disk.volumes(), err)
	}
}

// damaged has lost what it knew of its volumes.
type damaged struct{ *disk }

func (d damaged) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	if _, err := d.disk.Get(ctx, id); err != nil {
		return nil, err
	}
	return &backend.Volume{ID: id, Condition: backend.Condition{Abnormal: true, Message: "its metadata cannot be read"}}, nil
}

func TestDelete_FailureIsRetried(t *testing.T) {
	for _, at := range []string{"get", "delete", "deleted"} {
		s := newServer(t, quietClient())
		p := s.made()
		pv := released(t, p, nil)
		s.disk.hook(func(_ context.Context, call string) error {
			if call == at {
				return backend.ErrBusy
			}
			return nil
		})
		if err := p.Delete(t.Context(), pv); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("at %s: %v", at, err)
		}
		s.disk.hook(nil)
		if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
			t.Errorf("at %s: volumes %v, %v", at, s.disk.volumes(), err)
		}
	}
}

func TestDelete_MemoryOfReportsIsBounded(t *testing.T) {
	var seen onceOnly
	for i := range 3 * mostTold {
		seen.first(time.Duration(i).String())
	}
	if len(seen.seen) > mostTold {
		t.Errorf("%d are remembered", len(seen.seen))
	}
}
