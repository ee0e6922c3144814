package render

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/parameters"
)

const (
	// DefaultClass is the annotation of the class of claims that name none.
	DefaultClass = "storageclass.kubernetes.io/is-default-class"

	// OwnClass is made where the spec names no class.
	OwnClass = name

	// sharedClass is made beside the default one. Its claims wait as long as there is no NFSServer.
	sharedClass = name + "-shared"
)

var (
	snapshotClassKind      = schema.GroupKind{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"}
	groupSnapshotClassKind = schema.GroupKind{Group: "groupsnapshot.storage.k8s.io", Kind: "VolumeGroupSnapshotClass"}
)

func (p *plan) driver() []object {
	if !p.withCSI() {
		return nil
	}
	driver := Manifest[storage.CSIDriver](deploy.Driver, v1beta1.DriverName)
	driver.Spec.AttachRequired = new(p.spec.Attaches())
	p.announceInline(driver)
	return []object{driver}
}

func (p *plan) classes() (objects []object) {
	if !p.withCSI() {
		return nil
	}
	for _, spec := range p.classSpecs() {
		class := Manifest[storage.StorageClass](deploy.StorageClass, name)
		p.shape(class, spec)
		objects = append(objects, class)
	}
	return objects
}

// classSpecs returns the classes to make.
func (p *plan) classSpecs() []v1beta1.StorageClassSpec {
	if len(p.spec.StorageClasses) > 0 {
		return p.spec.StorageClasses
	}
	isDefault := !p.OtherDefault
	if p.spec.DefaultClass != nil {
		isDefault = *p.spec.DefaultClass
	}
	return []v1beta1.StorageClassSpec{{Name: OwnClass, Default: isDefault}, {
		Name: sharedClass, Parameters: map[string]string{parameters.Shared: "true"},
		VolumeBindingMode: string(storage.VolumeBindingImmediate), // all nodes reach all servers
	}}
}

// shape turns the class of the manifests into the specified one.
func (p *plan) shape(class *storage.StorageClass, spec v1beta1.StorageClassSpec) {
	class.Name = spec.Name
	if !spec.Default {
		delete(class.Annotations, DefaultClass)
	}
	if spec.ReclaimPolicy != "" {
		class.ReclaimPolicy = new(spec.ReclaimPolicy)
	}
	if spec.VolumeBindingMode != "" {
		class.VolumeBindingMode = new(storage.VolumeBindingMode(spec.VolumeBindingMode))
	}
	class.MountOptions = spec.MountOptions
	site := p.siteOf(spec)
	if site != nil && spec.VolumeBindingMode == "" {
		class.VolumeBindingMode = new(storage.VolumeBindingImmediate) // all nodes reach it
	}
	if isShared(spec) || hasDirectories(p.poolOf(spec)) {
		delete(class.Parameters, parameters.FSType) // it has that of its server or of its pool
	}
	maps.Copy(class.Parameters, parametersOf(spec))
	for _, c := range p.credentials() {
		keys := c.parameters()
		class.Parameters[keys[0]], class.Parameters[keys[1]] = c.secret, p.Namespace
	}
}

func isShared(class v1beta1.StorageClassSpec) bool {
	return class.Parameters[parameters.Shared] == "true"
}

// poolOf is the pool of a class, of several the first one of the spec. Without one it is the first on nodes, or the first of all where none is on nodes; nil where
// the class is of NFS servers.
func (p *plan) poolOf(class v1beta1.StorageClassSpec) *v1beta1.PoolSpec {
	if isShared(class) {
		return nil
	}
	among, named := p.pools, cmp.Or(class.Pool, strings.Join(class.Pools, ","))
	if on := v1beta1.NodePools(p.pools); named == "" && len(on) > 0 {
		among = on
	}
	return v1beta1.Find(among, func(pool v1beta1.PoolSpec) bool { return named == "" || v1beta1.NamesPool(named, pool.Name) })
}

// siteOf is poolOf if that is in a Ceph cluster.
func (p *plan) siteOf(class v1beta1.StorageClassSpec) *v1beta1.PoolSpec {
	if pool := p.poolOf(class); pool != nil && pool.Ceph != nil {
		return pool
	}
	return nil
}

// hasDirectories says whether the volumes of a pool are directories of its own file system, so that a class names none.
func hasDirectories(pool *v1beta1.PoolSpec) bool {
	return pool != nil && (pool.Engine == v1beta1.EngineCephFS || pool.Engine == v1beta1.EngineDirectory)
}

// parametersOf are the parameters of a class, with those that have a field.
func parametersOf(spec v1beta1.StorageClassSpec) map[string]string {
	all := map[string]string{}
	maps.Copy(all, spec.Parameters)
	for key, value := range map[string]string{
		parameters.FSType: string(spec.FSType), parameters.Pool: cmp.Or(spec.Pool, strings.Join(spec.Pools, ",")), parameters.OnNodeLoss: strings.ToLower(string(spec.OnNodeLoss)),
	} {
		if value != "" {
			all[key] = value
		}
	}
	return all
}

// snapshotClasses returns those whose kinds the API server knows.
func (p *plan) snapshotClasses() []object {
	if !p.withCSI() {
		return nil
	}
	unknown := func(o *unstructured.Unstructured) bool { return !p.Has(o.GroupVersionKind().GroupKind()) }
	return objectsOf(slices.DeleteFunc(deploy.Objects(deploy.SnapshotClasses), unknown))
}
