package storageos

import (
	"slices"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// fields are all fields in the documentation of StorageOS v2.4, in its order.
var fields = slices.Concat(metadataFields, accessFields, csiFields, serviceFields, imageFields, stateFields, placeFields)

const (
	ofTheServer = "the API server writes it"
	noEtcd      = "there is no etcd beside that of Kubernetes; what was stored for StorageOS alone can be removed once it is gone"
	fromKubelet = "it follows from spec.csi.kubeletDir; set that if the kubelet has another directory than /var/lib/kubelet"
	ownImage    = "it is software of StorageOS"
	always      = "; StorageOS v2 did so whatever was written here"
)

var metadataFields = []field{
	taken("metadata.name", "metadata.name", func(c *cluster) *string { return &c.Name }),
	noCounterpart("metadata.namespace", "a StorageCluster is in no namespace"),
	taken("metadata.labels", "metadata.labels; they are not put on what Holdfast makes", func(c *cluster) *map[string]string { return &c.Labels }),
	typed("metadata.annotations", takeAnnotations),
	noCounterpart("metadata.uid", ofTheServer),
	noCounterpart("metadata.resourceVersion", ofTheServer),
	noCounterpart("metadata.generation", ofTheServer),
	noCounterpart("metadata.creationTimestamp", ofTheServer),
	noCounterpart("metadata.deletionTimestamp", ofTheServer),
	noCounterpart("metadata.deletionGracePeriodSeconds", ofTheServer),
	noCounterpart("metadata.managedFields", ofTheServer),
	noCounterpart("metadata.selfLink", ofTheServer),
	noCounterpart("metadata.finalizers", "it belongs to the operator of StorageOS; Holdfast sets one of its own"),
	noCounterpart("metadata.ownerReferences", "the owner of the StorageOSCluster does not own this"),
	noCounterpart("status", "it is the state of StorageOS when the file was written"),
}

// lastApplied has a copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func takeAnnotations(c *conversion, all map[string]string) {
	if _, ok := all[lastApplied]; ok {
		delete(all, lastApplied)
		c.remarkf(NoMeaning, "%s is a copy of the file for kubectl", lastApplied)
	}
	if len(all) > 0 {
		c.cluster.Annotations = all
		c.remarkf(Taken, "metadata.annotations")
	}
}

var accessFields = []field{
	taken("spec.secretRefName", "spec.secretRef.name; by hand: Holdfast reads username and password where StorageOS had apiUsername and apiPassword, "+
		"so add these two keys; all others have the same names", func(c *cluster) *string { return &secretOf(c).Name }),
	taken("spec.secretRefNamespace", "spec.secretRef.namespace", func(c *cluster) *string { return &secretOf(c).Namespace }),
	noCounterpart("spec.namespace", "Holdfast runs where it was installed, usually in holdfast-system"),
	noCounterpart("spec.join", "nodes find each other through the API server only"),
}

func secretOf(c *cluster) *v1beta1.SecretReference {
	if c.Spec.SecretRef == nil {
		c.Spec.SecretRef = &v1beta1.SecretReference{}
	}
	return c.Spec.SecretRef
}

var csiFields = []field{
	typed("spec.csi.enable", func(c *conversion, on bool) {
		c.cluster.Spec.CSI.Enabled = &on
		c.remarkf(Taken, "spec.csi.enabled; StorageOS v2 used CSI whatever was written here")
	}),
	noCounterpart("spec.csi.version", "only version 1 of CSI is spoken"),
	noCounterpart("spec.csi.endpoint", fromKubelet),
	noCounterpart("spec.csi.registrarSocketDir", fromKubelet),
	taken("spec.csi.kubeletDir", "spec.csi.kubeletDir, from which all other paths follow", func(c *cluster) *string { return &c.Spec.CSI.KubeletDir }),
	noCounterpart("spec.csi.pluginDir", fromKubelet),
	noCounterpart("spec.csi.deviceDir", "devices are in /dev"),
	noCounterpart("spec.csi.registrationDir", fromKubelet),
	noCounterpart("spec.csi.kubeletRegistrationPath", fromKubelet),
	noCounterpart("spec.csi.driverRegisterationMode", "the node registers itself"),
	noCounterpart("spec.csi.driverRequiresAttachment", "StorageOS did not look at it; volumes in Ceph clusters are attached, others need no VolumeAttachments"),
	typed("spec.csi.deploymentStrategy", func(c *conversion, strategy string) {
		kind := v1beta1.AsStatefulSet
		if strategy == "deployment" {
			kind = v1beta1.AsDeployment
		}
		c.cluster.Spec.Controller.Kind = kind
		c.remarkf(Taken, "spec.controller.kind: %s, of the controller", kind)
	}),
	taken("spec.csi.enableProvisionCreds", "spec.csi.credentials.provision"+always, func(c *cluster) *bool { return &c.Spec.CSI.Credentials.Provision }),
	taken("spec.csi.enableControllerPublishCreds", "spec.csi.credentials.controllerPublish"+always,
		func(c *cluster) *bool { return &c.Spec.CSI.Credentials.ControllerPublish }),
	taken("spec.csi.enableNodePublishCreds", "spec.csi.credentials.nodePublish"+always, func(c *cluster) *bool { return &c.Spec.CSI.Credentials.NodePublish }),
	taken("spec.csi.enableControllerExpandCreds", "spec.csi.credentials.controllerExpand"+always,
		func(c *cluster) *bool { return &c.Spec.CSI.Credentials.ControllerExpand }),
	typed("spec.storageClassName", func(c *conversion, name string) {
		c.cluster.Spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: name}}
		c.remarkf(Taken, "spec.storageClasses[0].name; like that of StorageOS, it is not the default class unless you set default: true. By hand: remove the class of StorageOS first, as there can be one of a name")
	}),
}

var serviceFields = []field{
	taken("spec.service.name", "spec.service.name", func(c *cluster) *string { return &c.Spec.Service.Name }),
	typed("spec.service.type", func(c *conversion, kind string) {
		allowed := []core.ServiceType{core.ServiceTypeClusterIP, core.ServiceTypeNodePort, core.ServiceTypeLoadBalancer}
		if !slices.Contains(allowed, core.ServiceType(kind)) {
			c.remarkf(ByHand, "%q is not possible; set spec.service.type to one of %v", kind, allowed)
			return
		}
		c.cluster.Spec.Service.Type = core.ServiceType(kind)
		c.remarkf(Taken, "spec.service.type")
	}),
	typed("spec.service.externalPort", func(c *conversion, n int32) {
		if n > 65535 {
			c.remarkf(ByHand, "%d is no port; set spec.service.port", n)
			return
		}
		c.cluster.Spec.Service.Port = n
		c.remarkf(Taken, "spec.service.port, the port of the Service; StorageOS had the two ports the other way round")
	}),
	typed("spec.service.internalPort", func(c *conversion, n int32) {
		if n != 0 && n < 1024 || n > 65535 || n == 9090 {
			c.remarkf(ByHand, "%d is not possible for the controller, which runs without privileges and has its metrics at 9090; set spec.service.targetPort, or leave it out", n)
			return
		}
		c.cluster.Spec.Service.TargetPort = n
		c.remarkf(Taken, "spec.service.targetPort, the port of the pods; StorageOS had the two ports the other way round")
	}),
	taken("spec.service.annotations", "spec.service.annotations", func(c *cluster) *map[string]string { return &c.Spec.Service.Annotations }),
	taken("spec.ingress.enable", "spec.ingress.enabled", func(c *cluster) *bool { return &c.Spec.Ingress.Enabled }),
	taken("spec.ingress.hostname", "spec.ingress.host, for which alone the Ingress is now", func(c *cluster) *string { return &c.Spec.Ingress.Host }),
	taken("spec.ingress.tls", "spec.ingress.tls", func(c *cluster) *bool { return &c.Spec.Ingress.TLS }),
	typed("spec.ingress.annotations", takeIngressAnnotations),
}

// classAnnotation is the predecessor of spec.ingressClassName.
const classAnnotation = "kubernetes.io/ingress.class"

func takeIngressAnnotations(c *conversion, all map[string]string) {
	if class := all[classAnnotation]; class != "" {
		c.cluster.Spec.Ingress.IngressClassName = class
		delete(all, classAnnotation)
		c.remarkf(Taken, "spec.ingress.ingressClassName, what %s has", classAnnotation)
	}
	if len(all) > 0 {
		c.cluster.Spec.Ingress.Annotations = all
		c.remarkf(Taken, "spec.ingress.annotations")
	}
}

var imageFields = []field{
	noCounterpart("spec.images.nodeContainer", ownImage),
	noCounterpart("spec.images.initContainer", ownImage),
	mirrored("spec.images.csiNodeDriverRegistrarContainer", "csiNodeDriverRegistrar, where one is needed only if you want that one to register the driver"),
	noCounterpart("spec.images.csiClusterDriverRegistrarContainer", "Kubernetes has the CSIDriver kind for it"),
	mirrored("spec.images.csiExternalProvisionerContainer", "csiProvisioner"),
	mirrored("spec.images.csiExternalAttacherContainer", "csiAttacher, which runs only with a pool in a Ceph cluster"),
	mirrored("spec.images.csiExternalResizerContainer", "csiResizer"),
	mirrored("spec.images.csiLivenessProbeContainer", "csiLivenessProbe, where one is needed only if you want that one to probe the driver"),
	noCounterpart("spec.images.hyperkubeContainer", "StorageOS did not look at it"),
	noCounterpart("spec.images.kubeSchedulerContainer", "there is no second scheduler"),
	noCounterpart("spec.images.nfsContainer", ownImage),
	noCounterpart("spec.images.apiManagerContainer", ownImage),
	noCounterpart("spec.images.apiControllerContainer", ownImage+"; its sample has this name for apiManagerContainer, and the operator never read it"),
}

// mirrored is for images of other projects, which are too old for Holdfast.
func mirrored(path, to string) field {
	return manual(path, "Holdfast needs a newer one, which it names itself; if your nodes cannot pull from registry.k8s.io, mirror that and set spec.images."+to)
}

var stateFields = []field{
	noCounterpart("spec.kvBackend.address", noEtcd),
	noCounterpart("spec.kvBackend.backend", noEtcd),
	noCounterpart("spec.tlsEtcdSecretRefName", noEtcd),
	noCounterpart("spec.tlsEtcdSecretRefNamespace", noEtcd),
	manual("spec.sharedDir", "kubelets in containers are not supported as such; set spec.csi.kubeletDir to the kubelet's directory on the node"),
	taken("spec.pause", "spec.paused", func(c *cluster) *bool { return &c.Spec.Paused }),
	taken("spec.debug", "spec.debug", func(c *cluster) *bool { return &c.Spec.Debug }),
	typed("spec.disableFencing", func(c *conversion, on bool) {
		if on {
			c.cluster.Spec.Fencing.Pods = v1beta1.FenceNone
		}
		c.remarkf(Taken, "spec.fencing, which is about volumes in Ceph clusters; pods need the label holdfast.dev/fenced in place of storageos.com/fenced, and spec.fencing.after to be moved without a taint")
	}),
	noCounterpart("spec.disableTelemetry", "nothing is sent to anyone"),
	noCounterpart("spec.disableTCMU", "volumes are loop devices or directories"),
	noCounterpart("spec.forceTCMU", "volumes are loop devices or directories"),
	noCounterpart("spec.disableScheduler", "there is no second scheduler; that of Kubernetes gets the capacity of each node"),
}

var placeFields = []field{
	taken("spec.nodeSelectorTerms", "spec.nodeSelectorTerms, as the scheduler reads them: a node must match all of one term; for StorageOS one expression of it was enough to join",
		func(c *cluster) *[]core.NodeSelectorTerm { return &c.Spec.NodeSelectorTerms }),
	taken("spec.tolerations", "spec.tolerations; node pods tolerate every taint without them",
		func(c *cluster) *[]core.Toleration { return &c.Spec.Tolerations }),
	taken("spec.resources", "spec.resources, of Holdfast's own containers; they need far less than StorageOS did",
		func(c *cluster) *core.ResourceRequirements { return &c.Spec.Resources }),
	taken("spec.k8sDistro", "spec.distribution", func(c *cluster) *string { return &c.Spec.Distribution }),
}
