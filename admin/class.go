package admin

import (
	"fmt"
	"slices"
	"strings"

	storage "k8s.io/api/storage/v1"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/parameters"
)

const defaultClass = "storageclass.kubernetes.io/is-default-class"

type chosenClass struct {
	name         string
	fsType       string
	mountOptions []string
	missing      bool // no class has this name
}

func (o *observed) class(want Adoption) (chosenClass, error) {
	name := want.StorageClass
	if name == nil && o.claim != nil {
		name = new(classOf(o.claim))
	}
	if name == nil {
		class, err := o.fittingClass()
		if err != nil {
			return chosenClass{}, err
		}
		return o.chosen(class), nil
	}
	if *name == "" {
		return o.chosen(&storage.StorageClass{}), nil
	}
	i := slices.IndexFunc(o.classes, func(c storage.StorageClass) bool { return c.Name == *name })
	if i < 0 {
		class := o.chosen(&storage.StorageClass{})
		class.name, class.missing = *name, true
		return class, nil
	}
	if why := o.whyClassUnfit(&o.classes[i]); why != "" {
		return chosenClass{}, fmt.Errorf("StorageClass %s %s", *name, why)
	}
	return o.chosen(&o.classes[i]), nil
}

func (o *observed) chosen(c *storage.StorageClass) chosenClass {
	chosen := chosenClass{name: c.Name, fsType: c.Parameters[parameters.FSType], mountOptions: c.MountOptions}
	if persistent.Plain(o.volume) && len(chosen.mountOptions) == 0 {
		chosen.mountOptions = v1beta1.NFSMountOptions(o.serverOptions)
	}
	return chosen
}

// whyClassUnfit returns why a class does not fit the volume, or "".
func (o *observed) whyClassUnfit(c *storage.StorageClass) string {
	v := o.volume
	fsType, shared := c.Parameters[parameters.FSType], c.Parameters[parameters.Shared] == "true"
	switch {
	case c.Provisioner != persistent.Provisioner(v):
		return fmt.Sprintf("is of provisioner %s, and volume %s is one of %s", c.Provisioner, v.Name, persistent.Provisioner(v))
	case persistent.Plain(v):
		return ""
	case shared && !v.Spec.Shared:
		return fmt.Sprintf("is for volumes on NFS servers, and volume %s is on %s", v.Name, v1beta1.SiteOf(v.Spec.Node))
	case !shared && v.Spec.Shared:
		return fmt.Sprintf("is for volumes on nodes, and volume %s is on NFS server %s", v.Name, v1beta1.ServerOf(v.Spec.Node))
	case fsType != "" && v.Status.FSType != "" && fsType != v.Status.FSType:
		return fmt.Sprintf("is for the file system %s, and volume %s has %s", fsType, v.Name, v.Status.FSType)
	}
	return ""
}

// fittingClass returns the only class that fits the volume, or the default class if it is among several that fit.
func (o *observed) fittingClass() (*storage.StorageClass, error) {
	var fit []*storage.StorageClass
	var names []string
	for i := range o.classes {
		c := &o.classes[i]
		pool, ceph := c.Parameters[parameters.Pool], v1beta1.CephPoolOf(o.volume.Spec.Node)
		if o.whyClassUnfit(c) != "" || (pool != "" || ceph != "") && !v1beta1.NamesPool(pool, o.volume.Status.Pool) {
			continue
		}
		if c.Annotations[defaultClass] == "true" {
			return c, nil
		}
		fit, names = append(fit, c), append(names, c.Name)
	}
	switch len(fit) {
	case 0:
		return nil, fmt.Errorf("no StorageClass fits volume %s: give --storage-class with the class for the claim, or an empty one for none", o.volume.Name)
	case 1:
		return fit[0], nil
	}
	slices.Sort(names)
	return nil, fmt.Errorf("%d StorageClasses fit volume %s: give --storage-class with one of %s", len(fit), o.volume.Name, strings.Join(names, ", "))
}
