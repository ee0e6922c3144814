package render

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

// Release has the images of a program's release that differ from the manifests.
type Release struct {
	// Own is the image that the program runs from; "" if unknown. It is the default of spec.images.holdfast: the manifest of
	// a rebuilt or renamed image has another name than the program knows.
	Own v1beta1.Image
	// Related are the images that OLM names in the environment, by the names of their containers.
	Related map[string]v1beta1.Image
}

// relatedPrefix begins the variables by which OLM says where the images of a bundle are, in a registry of its user.
const relatedPrefix = "RELATED_IMAGE_"

// relatedImages are the images that have such a variable, by the names of their containers.
var relatedImages = []string{name, "csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "snapshot-controller", nfsName, cephName}

func relatedVariable(container string) string {
	return relatedPrefix + strings.ToUpper(strings.ReplaceAll(container, "-", "_"))
}

// NewRelease returns the release of a program that runs from an image, with an environment such as os.Getenv.
func NewRelease(own v1beta1.Image, environment func(variable string) string) Release {
	r := Release{Own: own, Related: map[string]v1beta1.Image{}}
	for _, container := range relatedImages {
		if image := environment(relatedVariable(container)); image != "" {
			r.Related[container] = v1beta1.Image(image)
		}
	}
	return r
}

// environment returns the variables to keep in the workload of the controller, which is rendered here too.
func (r Release) environment() (all []core.EnvVar) {
	for _, container := range relatedImages {
		if image := r.Related[container]; image != "" {
			all = append(all, core.EnvVar{Name: relatedVariable(container), Value: string(image)})
		}
	}
	return all
}

// Images returns the images of a StorageCluster, those of the release where it names none. What stays empty does not run.
func (r Release) Images(c *v1beta1.StorageCluster) v1beta1.Images {
	images, defaults, own := c.Spec.Images, r.defaults(c.Spec.ImageRegistry), r.Own
	if c.Spec.ImageRegistry != "" {
		own = "" // it may be in the registry from before
	}
	choose := func(image *v1beta1.Image, fallback v1beta1.Image) {
		if *image == "" {
			*image = fallback
		}
	}
	choose(&images.Holdfast, cmp.Or(own, defaults.Holdfast))
	choose(&images.CSIProvisioner, defaults.CSIProvisioner)
	choose(&images.CSIAttacher, defaults.CSIAttacher)
	choose(&images.CSIResizer, defaults.CSIResizer)
	choose(&images.CSISnapshotter, defaults.CSISnapshotter)
	choose(&images.NFS, r.NFSImage(images.Holdfast))
	choose(&images.Ceph, r.CephImage(images.Holdfast))
	return images
}

// NFSImage returns the image of NFS servers for an image of Holdfast: the same with the name nfs instead of holdfast, and
// with the tag of this release if it has none. If the image is not named holdfast, it is that of this release. An image
// that the environment names only belongs to the image of Holdfast that it names.
func (r Release) NFSImage(holdfast v1beta1.Image) v1beta1.Image {
	return r.imageBeside(holdfast, nfsName)
}

// CephImage is the image of pools in Ceph clusters that belongs to one of Holdfast, as NFSImage says it of NFS servers.
func (r Release) CephImage(holdfast v1beta1.Image) v1beta1.Image {
	return r.imageBeside(holdfast, cephName)
}

func (r Release) imageBeside(holdfast v1beta1.Image, other string) v1beta1.Image {
	if image := r.Related[other]; image != "" && holdfast != "" && holdfast == r.Related[name] {
		return image
	}
	beside, last := "", string(holdfast)
	if i := strings.LastIndexByte(last, '/'); i >= 0 {
		beside, last = last[:i+1], last[i+1:]
	}
	last, _, _ = strings.Cut(last, "@") // the digest is that of the other image
	image, tag, tagged := strings.Cut(last, ":")
	if image != name {
		return v1beta1.Image(name + "/" + other + ":" + deploy.Version)
	}
	if !tagged {
		tag = deploy.Version
	}
	return v1beta1.Image(beside + other + ":" + tag)
}

// The names of the images beside that of Holdfast.
const (
	nfsName  = "nfs"
	cephName = "ceph"
)

// defaults are those of the manifests, unless the environment names others; in a registry, if it is not empty.
func (r Release) defaults(registry string) v1beta1.Images {
	images := manifestImages()
	for container, image := range map[string]*v1beta1.Image{
		name: &images.Holdfast, "csi-provisioner": &images.CSIProvisioner, "csi-attacher": &images.CSIAttacher,
		"csi-resizer": &images.CSIResizer, "csi-snapshotter": &images.CSISnapshotter, "snapshot-controller": &images.SnapshotController,
	} {
		*image = inRegistry(registry, cmp.Or(r.Related[container], *image))
	}
	return images
}

// inRegistry returns the image of the same name in another registry; the image itself if that is empty.
func inRegistry(registry string, image v1beta1.Image) v1beta1.Image {
	if registry == "" {
		return image
	}
	host, path, qualified := strings.Cut(string(image), "/")
	if !qualified || host != "localhost" && !strings.ContainsAny(host, ".:") { // it has no host
		path = string(image)
	}
	return v1beta1.Image(registry + "/" + path)
}

// manifestImages are those of the manifests.
var manifestImages = sync.OnceValue(func() v1beta1.Images {
	controller := Manifest[apps.Deployment](deploy.Controller, v1beta1.ControllerName)
	beside := Manifest[core.PodTemplate](deploy.Sidecars, v1beta1.ControllerName)
	snapshots := Manifest[apps.Deployment](deploy.SnapshotController, snapshotControllerName)
	images := map[string]v1beta1.Image{}
	for _, container := range slices.Concat(controller.Spec.Template.Spec.Containers, beside.Template.Spec.Containers, snapshots.Spec.Template.Spec.Containers) {
		images[container.Name] = v1beta1.Image(container.Image)
	}
	return v1beta1.Images{
		Holdfast:       v1beta1.Image(strings.TrimSuffix(string(images[name]), deploy.DevelopmentTag) + deploy.Version),
		CSIProvisioner: images["csi-provisioner"],
		CSIAttacher:    images["csi-attacher"],
		CSIResizer:     images["csi-resizer"],
		CSISnapshotter: images["csi-snapshotter"],

		SnapshotController: images["snapshot-controller"],
	}
})
