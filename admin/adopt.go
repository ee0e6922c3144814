package admin

import (
	"context"
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Adoption specifies how a volume is adopted.
type Adoption struct {
	// Volume has no claim.
	Volume string
	// Claim is NAMESPACE/NAME of an existing claim that is Pending and fits, or of a new one.
	Claim string
	// StorageClass of a new PersistentVolume. Nil selects the class of the claim, or a class that fits.
	StorageClass *string
	// AccessModes of a new PersistentVolume. Nil selects those of the claim, or the default of the volume.
	AccessModes []core.PersistentVolumeAccessMode
	// ReclaimPolicy of the PersistentVolume. Empty means Retain.
	ReclaimPolicy core.PersistentVolumeReclaimPolicy
	// Print prints the objects and creates nothing.
	Print bool
}

// ParseClaim parses NAMESPACE/NAME.
func ParseClaim(key string) (namespace, name string, err error) {
	namespace, name, _ = strings.Cut(key, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", "", fmt.Errorf("claim %.80q: it must be NAMESPACE/NAME, such as shop/data-orders-0", key)
	}
	return namespace, name, nil
}

// Adopt gives a volume without a claim a PersistentVolume and a claim, and waits until they are bound. It keeps
// existing objects that are right, so it can be repeated.
func (a *Admin) Adopt(ctx context.Context, want Adoption) error {
	namespace, name, err := ParseClaim(want.Claim)
	if err != nil {
		return err
	}
	o, err := a.observe(ctx, want.Volume, namespace, name)
	if err != nil {
		return err
	}
	b, err := o.plan(want)
	if err != nil {
		return err
	}
	if want.Print {
		return a.print(b)
	}
	for _, note := range b.notes {
		a.sayf("%s", note)
	}
	if a.unsaid != nil {
		return a.unsaid
	}
	ctx, cancel := a.limited(ctx)
	defer cancel()
	if err := a.bind(ctx, o.volume.Name, b); err != nil {
		return err
	}
	a.sayf("claim %s/%s is bound to volume %s (%s on %s) by PersistentVolume %s; pods can use it",
		namespace, name, o.volume.Name, size(v1beta1.Bytes(o.volume.Status.Size)), o.volume.Spec.Node, b.pv.Name)
	return a.unsaid
}

type observed struct {
	volume          *v1beta1.Volume
	namespace, name string                      // of the claim
	claim           *core.PersistentVolumeClaim // nil: it does not exist
	naming          []naming
	taken           map[string]bool // names of PersistentVolumes
	classes         []storage.StorageClass
	serverOptions   []string // mount options of the NFS server of a plain volume
	store           string   // of that server, if known
}

func (a *Admin) observe(ctx context.Context, volume, namespace, name string) (*observed, error) {
	v, err := a.Holdfast.HoldfastV1beta1().Volumes().Get(ctx, volume, metav1.GetOptions{})
	if err != nil {
		return nil, a.absent(ctx, volume, err)
	}
	o := &observed{volume: v, namespace: namespace, name: name, taken: map[string]bool{}}
	if o.claim, err = a.claim(ctx, namespace, name); err != nil {
		return nil, err
	}
	all, err := a.persistentVolumes(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		o.taken[all[i].Name] = true
		if store := persistent.StoreOf(&all[i], persistent.Server(v)); store != "" {
			o.store = store
		}
	}
	if o.naming, err = a.namingOf(ctx, v, all); err != nil {
		return nil, err
	}
	classes, err := a.Kubernetes.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the StorageClasses could not be listed: %w", err)
	}
	o.classes = classes.Items
	if namespace, name, is := strings.Cut(persistent.Server(v), "/"); is {
		server, err := a.Holdfast.HoldfastV1beta1().NFSServers(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("volume %s was created by NFSServer %s/%s, which could not be read: %w", v.Name, namespace, name, err)
		}
		o.serverOptions = server.Spec.MountOptions
	}
	return o, nil
}
