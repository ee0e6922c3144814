package render

import (
	"maps"

	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/deploy"
)

const (
	defaultClass = "storageclass.kubernetes.io/is-default-class"

	poolParameter       = "pool"
	onNodeLossParameter = "onNodeLoss"
	fsTypeParameter     = "csi.storage.k8s.io/fstype"
	sharedParameter     = "shared"

	// sharedClass is made beside the default one. Its claims wait as long as there is no NFSServer.
	sharedClass = name + "-shared"
)

var (
	snapshotClassKind      = schema.GroupKind{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"}
	groupSnapshotClassKind = schema.GroupKind{Group: "groupsnapshot.storage.k8s.io", Kind: "VolumeGroupSnapshotClass"}
)

func (p *plan) driver() ([]object, error) {
	if !p.withCSI() {
		return nil, nil
	}
	driver, err := manifest[storage.CSIDriver](deploy.Driver, "CSIDriver", v1.DriverName)
	if err != nil {
		return nil, err
	}
	driver.Spec.AttachRequired = &p.spec.CSI.Attach
	p.announceInline(driver)
	return []object{driver}, nil
}

func (p *plan) classes() ([]object, error) {
	if !p.withCSI() {
		return nil, nil
	}
	var objects []object
	for _, spec := range classes(p.spec) {
		class, err := manifest[storage.StorageClass](deploy.StorageClass, "StorageClass", name)
		if err != nil {
			return nil, err
		}
		p.shape(class, spec)
		objects = append(objects, class)
	}
	return objects, nil
}

// classes returns the classes to make.
func classes(spec v1.StorageClusterSpec) []v1.StorageClassSpec {
	if len(spec.StorageClasses) > 0 {
		return spec.StorageClasses
	}
	return []v1.StorageClassSpec{{Name: name, Default: true}, {
		Name: sharedClass, Parameters: map[string]string{sharedParameter: "true"},
		BindingMode: string(storage.VolumeBindingImmediate), // all nodes reach all servers
	}}
}

// shape makes the class of the manifests the one that is asked for.
func (p *plan) shape(class *storage.StorageClass, spec v1.StorageClassSpec) {
	class.Name = spec.Name
	if !spec.Default {
		delete(class.Annotations, defaultClass)
	}
	if spec.ReclaimPolicy != "" {
		class.ReclaimPolicy = new(spec.ReclaimPolicy)
	}
	if spec.BindingMode != "" {
		class.VolumeBindingMode = new(storage.VolumeBindingMode(spec.BindingMode))
	}
	class.MountOptions = spec.MountOptions
	maps.Copy(class.Parameters, spec.Parameters)
	if spec.Parameters[sharedParameter] == "true" {
		delete(class.Parameters, fsTypeParameter) // a server may have no file systems to choose from
	}
	for key, value := range map[string]string{
		fsTypeParameter: string(spec.FSType), poolParameter: spec.Pool, onNodeLossParameter: string(spec.OnNodeLoss),
	} {
		if value != "" {
			class.Parameters[key] = value
		}
	}
	for _, c := range p.credentials() {
		keys := c.parameters()
		class.Parameters[keys[0]], class.Parameters[keys[1]] = c.secret, p.Namespace
	}
}

// snapshotClasses returns those whose kinds the API server knows.
func (p *plan) snapshotClasses() ([]object, error) {
	if !p.withCSI() {
		return nil, nil
	}
	all, err := deploy.Objects(deploy.SnapshotClasses)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, o := range all {
		if p.Has(o.GroupVersionKind().GroupKind()) {
			objects = append(objects, o)
		}
	}
	return objects, nil
}
