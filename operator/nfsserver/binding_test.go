package nfsserver

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const classPolicy = "holdfast-nfs-classes"

// refusedBinding says whether a binding is refused, by whichever policy is asked first.
func refusedBinding(err error) bool {
	return realapi.RefusedBy("holdfast-nfs-claims", err) || realapi.RefusedBy(classPolicy, err)
}

// class makes a StorageClass; server is what its parameter names.
func (a *attacked) class(name, provisioner, server string, mode storage.VolumeBindingMode) string {
	a.Helper()
	c := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + a.namespace}, Provisioner: provisioner, Parameters: map[string]string{}, VolumeBindingMode: &mode}
	if server != "" {
		c.Parameters["NFSServer"] = server
	}
	check.Got(a.theirs.StorageV1().StorageClasses().Create(a.Context(), c, metav1.CreateOptions{}))(a)
	a.Cleanup(func() { _ = a.theirs.StorageV1().StorageClasses().Delete(background, c.Name, metav1.DeleteOptions{}) })
	return c.Name
}

// pending makes a claim of a class, in which Kubernetes has noted the provisioner if it asks for one.
func (a *attacked) pending(name, class, provisioner string) *core.PersistentVolumeClaim {
	a.Helper()
	claims := a.theirs.CoreV1().PersistentVolumeClaims(a.namespace)
	c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *a.claim.Spec.DeepCopy()}
	if name == copied {
		c.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": provisioner}
	}
	c.Spec.StorageClassName = &class
	made, err := claims.Create(a.Context(), c, metav1.CreateOptions{})
	check.OK(a, err)
	wait.Until(a, "the provisioner of "+name, func() bool {
		made, err = claims.Get(a.Context(), name, metav1.GetOptions{})
		return err == nil && made.Annotations["volume.kubernetes.io/storage-provisioner"] == provisioner
	})
	return made
}

// bind binds a claim as Kubernetes does, and changes nothing.
func (a *attacked) bind(c *core.PersistentVolumeClaim, volume string, annotations map[string]string) error {
	next := c.DeepCopy()
	next.ResourceVersion, next.Spec.VolumeName = "", volume
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
	}
	_, err := a.theirs.CoreV1().PersistentVolumeClaims(a.namespace).Update(a.Context(), next, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

var byController = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes", "pv.kubernetes.io/bind-completed": "yes"}

// forClaim makes a PersistentVolume for a claim with some account.
func (a *attacked) forClaim(c *core.PersistentVolumeClaim, name string, as *rest.Config) *core.PersistentVolume {
	a.Helper()
	pv := a.object(func(pv *core.PersistentVolume) {
		pv.Name, pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = name, c.Name, c.UID
		pv.Spec.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimRetain
	})
	made := check.Got(kubernetes.NewForConfigOrDie(as).CoreV1().PersistentVolumes().Create(a.Context(), pv, metav1.CreateOptions{}))(a)
	a.Cleanup(func() { a.removed(name) })
	return made
}

func (a *attacked) removed(name string) {
	_ = a.theirs.CoreV1().PersistentVolumes().Delete(background, name, metav1.DeleteOptions{})
	_ = realapi.Unfinalize(background, a.config, name)
}

// volumeOf waits until a claim is bound.
func (a *attacked) volumeOf(c *core.PersistentVolumeClaim) (volume string) {
	a.Helper()
	wait.Until(a, "claim "+c.Name+" being bound", func() bool {
		now := check.Got(a.theirs.CoreV1().PersistentVolumeClaims(a.namespace).Get(a.Context(), c.Name, metav1.GetOptions{}))(a)
		volume = now.Spec.VolumeName
		return now.Status.Phase == core.ClaimBound
	})
	return volume
}

const (
	copied  = "of-a-copied-one" // a claim with the annotations of another
	ofNFS   = "nfs.holdfast.dev"
	ofCSI   = "csi.holdfast.dev"
	atOnce  = storage.VolumeBindingImmediate
	waiting = storage.VolumeBindingWaitForFirstConsumer
)

func TestToken_OfAnNFSServerBindsOnlyClaimsThatAreForIt(t *testing.T) {
	r := newRig(t)
	a := r.attack()
	const otherServer = "another NFS server than "
	for name, test := range map[string]struct{ class, provisioner, refused string }{
		"of-its-server":     {a.class("own", ofNFS, a.namespace+"/one", atOnce), ofNFS, ""},
		"of-its-name":       {a.class("named", ofNFS, "one", atOnce), ofNFS, ""},
		"of-any-server":     {a.class("any", ofNFS, "", atOnce), ofNFS, ""},
		"of-another-server": {a.class("other", ofNFS, a.namespace+"/two", atOnce), ofNFS, otherServer + a.namespace + "/one"},
		"of-another-name":   {a.class("two", ofNFS, "two", atOnce), ofNFS, otherServer + a.namespace + "/one"},
		"of-another-driver": {a.class("csi", ofCSI, "", atOnce), ofCSI, "nfs.holdfast.dev"},
		"of-a-waiting-one":  {a.class("late", ofCSI, "", waiting), "", "nfs.holdfast.dev"},
		copied:              {a.class("copied", ofCSI, "", waiting), ofNFS, "is a class of " + ofCSI},
		"of-no-class":       {"", "", "is not for the provisioner nfs.holdfast.dev"},
		"of-a-missing-one":  {"missing-" + a.namespace, "", "is not for the provisioner nfs.holdfast.dev"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := a.pending(name, test.class, test.provisioner)
			own, others := a.nameFor(claim), name+"-"+a.namespace
			wait.Until(r, "the policies", func() bool { // the API server reads policies and classes some time after they are made
				err := a.bind(claim, own, byController)
				return test.refused == "" && err == nil || test.refused != "" && refusedBinding(err) && strings.Contains(err.Error(), test.refused)
			})
			a.forClaim(claim, own, a.token)
			if test.refused == "" {
				if is := a.volumeOf(claim); is != own {
					t.Errorf("it is bound to %s", is)
				}
				return
			}
			wait.Until(a, "Kubernetes trying to bind it", func() bool {
				pv, err := a.theirs.CoreV1().PersistentVolumes().Get(t.Context(), own, metav1.GetOptions{})
				return err == nil && pv.Status.Phase == core.VolumeBound
			})
			a.removed(own)
			a.forClaim(claim, others, a.config)
			if is := a.volumeOf(claim); is != others {
				t.Errorf("it is bound to %s, which the token made", is)
			}
		})
	}
}

// A claim that exists is adopted by its volumeName, and is of any class.
func TestNFSServer_VolumeThatAUserChoosesIsBoundToAnyClaim(t *testing.T) {
	r := newRig(t)
	a := r.attack()
	claim := a.pending("adopts", a.class("csi", ofCSI, "", atOnce), ofCSI)
	name := a.nameFor(claim)
	wait.Until(r, "the policies", func() bool { return refusedBinding(a.bind(claim, name, byController)) })
	a.forClaim(claim, name, a.config)
	patch := []byte(`{"spec":{"volumeName":"` + name + `"}}`)
	check.Got(a.theirs.CoreV1().PersistentVolumeClaims(a.namespace).Patch(t.Context(), claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	if is := a.volumeOf(claim); is != name {
		t.Errorf("it is bound to %s", is)
	}
	// A retained volume that an administrator has made available again was made for a claim that is gone.
	if err := a.bind(a.pending("again", *claim.Spec.StorageClassName, ofCSI), name, byController); err != nil {
		t.Errorf("the volume of another claim: %v", err)
	}
}
