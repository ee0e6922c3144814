package provisioner

import (
	"context"
	"errors"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// begun is a volume that was made and has no PersistentVolume.
func begun(t *testing.T) (*server, *Provisioner, *core.PersistentVolume, backend.ID) {
	t.Helper()
	s, p := quiet(t)
	pv := p.provisioned(t, options(nil))
	pv.Annotations[v1beta1.ProvisionedByAnnotation] = p.Name
	return s, p, pv, volumeOf(pv)
}

// working looks at what was begun until the test ends.
func (p *Provisioner) working(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	alongside.Run(ctx, t, cancel, func(ctx context.Context) error {
		go p.claims.RunWithContext(ctx)
		return p.begun.Run(ctx)
	})
	if !cache.WaitForCacheSync(t.Context().Done(), p.claims.HasSynced) {
		t.Fatal("the claims are not listed")
	}
}

func TestBegun_EndsByWhatTheAPIServerSays(t *testing.T) {
	type (
		claim  = core.PersistentVolumeClaim
		volume = core.PersistentVolume
		of     struct {
			claim  func(*claim)  // nil: it is gone
			volume func(*volume) // nil: there is none
			server func(*server, *Provisioner)
		}
	)
	waits, has := func(*claim) {}, func(*volume) {}
	const on, store, by = v1beta1.NFSServerAnnotation, v1beta1.NFSStoreAnnotation, v1beta1.ProvisionedByAnnotation
	annotated := func(key, value string) func(*volume) { return func(v *volume) { v.Annotations[key] = value } }
	bound := func(to string) func(*claim) { return func(c *claim) { c.Spec.VolumeName = to } }
	id := backend.ID(options(nil).PVName)
	fails := errors.New("no route")
	unanswered := func(resource string) func(*server, *Provisioner) {
		return func(_ *server, p *Provisioner) {
			no := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, fails }
			p.Client.(*fake.Clientset).PrependReactor("get", resource, no)
		}
	}
	replaced := func(s *server, _ *Provisioner) {
		check.OK(t, s.disk.Memory.Delete(t.Context(), id))
		check.Got(s.disk.Memory.Create(t.Context(), backend.VolumeSpec{Name: string(id)}))(t)
	}
	for name, test := range map[string]struct {
		of
		stays, begun bool // the volume, and its entry of the journal
		err          error
	}{
		"the claim waits":                        {of{claim: waits}, true, true, nil},
		"the claim is gone":                      {of{}, false, false, nil},
		"another claim has its name":             {of{claim: func(c *claim) { c.UID = "another" }}, false, false, nil},
		"the claim got another volume":           {of{claim: bound("another")}, false, false, nil},
		"the claim lost its PersistentVolume":    {of{claim: bound(string(id) + ofMain)}, true, false, nil},
		"it lost one of an earlier release":      {of{claim: bound(string(id))}, true, false, nil},
		"it has its PersistentVolume":            {of{claim: waits, volume: has}, true, false, nil},
		"it has one of an earlier release":       {of{claim: waits, volume: func(v *volume) { v.Name = string(id) }}, true, false, nil},
		"it has one and the claim is gone":       {of{volume: has}, true, false, nil},
		"another server made one":                {of{claim: waits, volume: annotated(on, "storage/other")}, false, false, nil},
		"another disk of this server made one":   {of{claim: waits, volume: annotated(store, "other")}, false, false, nil},
		"another provisioner made one like this": {of{claim: waits, volume: annotated(by, "x")}, false, false, nil},

		"no answer about claims":  {of{server: unanswered("persistentvolumeclaims")}, true, true, fails},
		"no answer about volumes": {of{server: unanswered("persistentvolumes")}, true, true, fails},
		"it cannot be removed": {of{server: func(s *server, _ *Provisioner) {
			s.disk.fails("delete", backend.ErrPrecondition)
		}}, true, true, backend.ErrPrecondition},
		"another volume has its name": {of{server: replaced}, true, false, nil},
		"the Lease is lost":           {of{server: func(_ *server, p *Provisioner) { p.gate.shut() }}, true, true, nil},
	} {
		s, p, pv, id := begun(t)
		if test.claim != nil {
			c := options(nil).PVC
			test.claim(c)
			check.Got(p.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Create(t.Context(), c, metav1.CreateOptions{}))(t)
		}
		if test.volume != nil {
			test.volume(pv)
			check.Got(p.Client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}))(t)
		}
		if test.server != nil {
			test.server(s, p)
		}
		if _, err := p.reconcile(t.Context(), id); !errors.Is(err, test.err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, begun := p.journal.get(id); begun != test.begun {
			t.Errorf("%s: in the journal: %v", name, begun)
		}
		if stays := len(s.disk.volumes()) == 1; stays != test.stays {
			t.Errorf("%s: on the disk: %v", name, stays)
		}
	}
}

// The loser of two servers looks just while the winner's PersistentVolume is written and the claim is bound to it.
func TestBegun_APersistentVolumeThatComesBetweenTwoQuestionsIsNotTakenForLost(t *testing.T) {
	s, p, pv, id := begun(t)
	client := p.Client.(*fake.Clientset)
	claim := options(nil).PVC
	check.OK(t, client.Tracker().Add(claim.DeepCopy()))
	pv.Annotations[v1beta1.NFSServerAnnotation] = "storage/other"
	claim.Spec.VolumeName = pv.Name
	asked := 0
	between := func(a clienttesting.Action) (bool, runtime.Object, error) {
		answer, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), a.(clienttesting.GetAction).GetName())
		if asked++; asked == 1 {
			err = errors.Join(err, client.Tracker().Add(pv), client.Tracker().Update(claimResource, claim, claim.Namespace))
			if apierrors.IsNotFound(err) {
				err = apierrors.NewNotFound(a.GetResource().GroupResource(), "it")
			}
		}
		return true, answer, err
	}
	client.PrependReactor("get", "persistentvolumes", between)
	client.PrependReactor("get", "persistentvolumeclaims", between)
	for range 2 {
		check.Got(p.reconcile(t.Context(), id))(t)
	}
	if len(s.disk.volumes()) != 0 || len(p.journal.all()) != 0 {
		t.Errorf("the volume of the loser is kept: %v, journal %v", s.disk.volumes(), p.journal.all())
	}
}

var claimResource = core.SchemeGroupVersion.WithResource("persistentvolumeclaims")

func TestBegun_AClaimThatIsDeletedIsLookedAtAtOnce(t *testing.T) {
	s, p, _, id := begun(t)
	other := options(nil).PVC
	other.UID = "other"
	for _, o := range []any{other, "no claim"} {
		if all := p.begunFor(o); len(all) != 0 {
			t.Errorf("for %v %v was begun", o, all)
		}
	}
	claims := p.Client.CoreV1().PersistentVolumeClaims("default")
	check.Got(claims.Create(t.Context(), options(nil).PVC, metav1.CreateOptions{}))(t)
	p.working(t)
	check.OK(t, claims.Delete(t.Context(), options(nil).PVC.Name, metav1.DeleteOptions{}))
	wait.Until(t, "volume "+string(id)+" is gone", func() bool { return len(s.disk.volumes()) == 0 && len(p.journal.all()) == 0 })
}
