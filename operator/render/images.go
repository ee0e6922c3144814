package render

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/deploy"
)

// Images returns the images of a StorageCluster, those of this release where it names none. What stays empty does not
// run.
func Images(c *v1.StorageCluster) v1.Images {
	images, defaults := c.Spec.Images, defaultImages()
	choose := func(image *v1.Image, fallback v1.Image) {
		if *image == "" {
			*image = fallback
		}
	}
	choose(&images.Holdfast, holdfastImage())
	choose(&images.CSIProvisioner, defaults.CSIProvisioner)
	choose(&images.CSIAttacher, defaults.CSIAttacher)
	choose(&images.CSIResizer, defaults.CSIResizer)
	choose(&images.CSISnapshotter, defaults.CSISnapshotter)
	choose(&images.NFS, NFSImage(images.Holdfast))
	return images
}

// NFSImage is the image of NFS servers that belongs to one of Holdfast: it is beside it, is named nfs instead of
// holdfast, and has the same tag, or where there is none that of this release. Of an image that is not named holdfast it is
// that of this release. One that the environment names goes with the image of Holdfast that it names, and with no other.
func NFSImage(holdfast v1.Image) v1.Image {
	if image := related(nfsName); image != "" && holdfast != "" && holdfast == related(name) {
		return image
	}
	beside, last := "", string(holdfast)
	if i := strings.LastIndexByte(last, '/'); i >= 0 {
		beside, last = last[:i+1], last[i+1:]
	}
	last, _, _ = strings.Cut(last, "@") // the digest is of the other one alone
	image, tag, tagged := strings.Cut(last, ":")
	if image != name {
		return v1.Image(name + "/" + nfsName + ":" + deploy.Version)
	}
	if !tagged {
		tag = deploy.Version
	}
	return v1.Image(beside + nfsName + ":" + tag)
}

const nfsName = "nfs"

// own is the image that this program runs from.
var own atomic.Pointer[v1.Image]

// SetOwnImage says which image this program runs from. It is that of Holdfast where a StorageCluster names none: who has
// built or renamed it has changed the manifest, and the program knows nothing of that. It is called once, before Objects.
func SetOwnImage(image v1.Image) { own.Store(&image) }

// holdfastImage is the image of Holdfast where a StorageCluster names none.
func holdfastImage() v1.Image {
	if image := own.Load(); image != nil && *image != "" {
		return *image
	}
	return defaultImages().Holdfast
}

// relatedPrefix begins the variables by which OLM says where the images of a bundle are, in a registry of its user.
const relatedPrefix = "RELATED_IMAGE_"

// relatedImages are the images that have such a variable, by the names of their containers.
var relatedImages = []string{name, "csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "snapshot-controller", nfsName}

func relatedVariable(container string) string {
	return relatedPrefix + strings.ToUpper(strings.ReplaceAll(container, "-", "_"))
}

// related is the image that the environment names; "" if it names none.
func related(container string) v1.Image { return v1.Image(os.Getenv(relatedVariable(container))) }

// relatedEnvironment hands on what this process was told, since the workload of the controller is made here too.
func relatedEnvironment() (all []core.EnvVar) {
	for _, container := range relatedImages {
		if image := related(container); image != "" {
			all = append(all, core.EnvVar{Name: relatedVariable(container), Value: string(image)})
		}
	}
	return all
}

// defaultImages are those of the manifests, unless the environment names others.
func defaultImages() v1.Images {
	images := manifestImages()
	for container, image := range map[string]*v1.Image{
		name: &images.Holdfast, "csi-provisioner": &images.CSIProvisioner, "csi-attacher": &images.CSIAttacher,
		"csi-resizer": &images.CSIResizer, "csi-snapshotter": &images.CSISnapshotter, "snapshot-controller": &images.SnapshotController,
	} {
		*image = cmp.Or(related(container), *image)
	}
	return images
}

// manifestImages are those of the manifests.
var manifestImages = sync.OnceValue(func() v1.Images {
	controller, err := manifest[apps.Deployment](deploy.Controller, "Deployment", controllerName)
	if err != nil {
		panic(err) // it is compiled in
	}
	beside, err := manifest[core.PodTemplate](deploy.Sidecars, "PodTemplate", controllerName)
	if err != nil {
		panic(err) // it is compiled in
	}
	snapshots, err := manifest[apps.Deployment](deploy.SnapshotController, "Deployment", snapshotControllerName)
	if err != nil {
		panic(err) // it is compiled in
	}
	images := map[string]v1.Image{}
	for _, container := range slices.Concat(controller.Spec.Template.Spec.Containers, beside.Template.Spec.Containers, snapshots.Spec.Template.Spec.Containers) {
		images[container.Name] = v1.Image(container.Image)
	}
	return v1.Images{
		Holdfast:       v1.Image(strings.TrimSuffix(string(images[name]), deploy.DevelopmentTag) + deploy.Version),
		CSIProvisioner: images["csi-provisioner"],
		CSIAttacher:    images["csi-attacher"],
		CSIResizer:     images["csi-resizer"],
		CSISnapshotter: images["csi-snapshotter"],

		SnapshotController: images["snapshot-controller"],
	}
})
