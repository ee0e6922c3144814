package render

import (
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
// that of this release.
func NFSImage(holdfast v1.Image) v1.Image {
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

// defaultImages are those of the manifests.
var defaultImages = sync.OnceValue(func() v1.Images {
	controller, err := manifest[apps.Deployment](deploy.Controller, "Deployment", controllerName)
	if err != nil {
		panic(err) // it is compiled in
	}
	beside, err := manifest[core.PodTemplate](deploy.Sidecars, "PodTemplate", controllerName)
	if err != nil {
		panic(err) // it is compiled in
	}
	images := map[string]v1.Image{}
	for _, container := range append(controller.Spec.Template.Spec.Containers, beside.Template.Spec.Containers...) {
		images[container.Name] = v1.Image(container.Image)
	}
	return v1.Images{
		Holdfast:       v1.Image(strings.TrimSuffix(string(images[name]), deploy.DevelopmentTag) + deploy.Version),
		CSIProvisioner: images["csi-provisioner"],
		CSIAttacher:    images["csi-attacher"],
		CSIResizer:     images["csi-resizer"],
		CSISnapshotter: images["csi-snapshotter"],
	}
})
