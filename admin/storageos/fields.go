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
)

var metadataFields = []field{
	stringField("metadata.name", func(c *conversion, name string) {
		c.cluster.Name = name
		c.remarkf(Taken, "metadata.name")
	}),
	noCounterpart("metadata.namespace", "a StorageCluster is in no namespace"),
	stringMap("metadata.labels", func(c *conversion, all map[string]string) {
		c.cluster.Labels = all
		c.remarkf(Taken, "metadata.labels; they are not put on what Holdfast makes")
	}),
	stringMap("metadata.annotations", takeAnnotations),
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
	stringField("spec.secretRefName", func(c *conversion, name string) {
		c.secret().Name = name
		c.remarkf(Taken, "spec.secretRef.name; by hand: Holdfast reads username and password where StorageOS had apiUsername and apiPassword, so add these two keys; all others have the same names")
	}),
	stringField("spec.secretRefNamespace", func(c *conversion, namespace string) {
		c.secret().Namespace = namespace
		c.remarkf(Taken, "spec.secretRef.namespace")
	}),
	noCounterpart("spec.namespace", "Holdfast runs where it was installed, usually in holdfast-system"),
	noCounterpart("spec.join", "nodes find each other through the API server only"),
}

func (c *conversion) secret() *v1beta1.SecretReference {
	if c.spec().SecretRef == nil {
		c.spec().SecretRef = &v1beta1.SecretReference{}
	}
	return c.spec().SecretRef
}

var csiFields = []field{
	boolField("spec.csi.enable", func(c *conversion, on bool) {
		c.spec().CSI.Enabled = &on
		c.remarkf(Taken, "spec.csi.enabled; StorageOS v2 used CSI whatever was written here")
	}),
	noCounterpart("spec.csi.version", "only version 1 of CSI is spoken"),
	noCounterpart("spec.csi.endpoint", fromKubelet),
	noCounterpart("spec.csi.registrarSocketDir", fromKubelet),
	stringField("spec.csi.kubeletDir", func(c *conversion, dir string) {
		c.spec().CSI.KubeletDir = dir
		c.remarkf(Taken, "spec.csi.kubeletDir, from which all other paths follow")
	}),
	noCounterpart("spec.csi.pluginDir", fromKubelet),
	noCounterpart("spec.csi.deviceDir", "devices are in /dev"),
	noCounterpart("spec.csi.registrationDir", fromKubelet),
	noCounterpart("spec.csi.kubeletRegistrationPath", fromKubelet),
	noCounterpart("spec.csi.driverRegisterationMode", "the node registers itself"),
	noCounterpart("spec.csi.driverRequiresAttachment", "StorageOS did not look at it; spec.csi.attachRequired makes VolumeAttachments, which Holdfast does not need"),
	stringField("spec.csi.deploymentStrategy", func(c *conversion, strategy string) {
		c.spec().Controller.Kind = v1beta1.AsStatefulSet
		if strategy == "deployment" {
			c.spec().Controller.Kind = v1beta1.AsDeployment
		}
		c.remarkf(Taken, "spec.controller.kind: %s, of the controller", c.spec().Controller.Kind)
	}),
	credentials("spec.csi.enableProvisionCreds", "spec.csi.credentials.provision", func(c *v1beta1.CSISpec) *bool { return &c.Credentials.Provision }),
	credentials("spec.csi.enableControllerPublishCreds", "spec.csi.credentials.controllerPublish", func(c *v1beta1.CSISpec) *bool { return &c.Credentials.ControllerPublish }),
	credentials("spec.csi.enableNodePublishCreds", "spec.csi.credentials.nodePublish", func(c *v1beta1.CSISpec) *bool { return &c.Credentials.NodePublish }),
	credentials("spec.csi.enableControllerExpandCreds", "spec.csi.credentials.controllerExpand", func(c *v1beta1.CSISpec) *bool { return &c.Credentials.ControllerExpand }),
	stringField("spec.storageClassName", func(c *conversion, name string) {
		c.class(name)
		c.remarkf(Taken, "spec.storageClasses[0].name; like that of StorageOS, it is not the default class unless you set default: true. By hand: remove the class of StorageOS first, as there can be one of a name")
	}),
}

func credentials(path, to string, of func(*v1beta1.CSISpec) *bool) field {
	return boolField(path, func(c *conversion, on bool) {
		*of(&c.spec().CSI) = on
		c.remarkf(Taken, "%s; StorageOS v2 did so whatever was written here", to)
	})
}

var serviceFields = []field{
	stringField("spec.service.name", func(c *conversion, name string) {
		c.spec().Service.Name = name
		c.remarkf(Taken, "spec.service.name")
	}),
	stringField("spec.service.type", func(c *conversion, kind string) {
		allowed := []core.ServiceType{core.ServiceTypeClusterIP, core.ServiceTypeNodePort, core.ServiceTypeLoadBalancer}
		if !slices.Contains(allowed, core.ServiceType(kind)) {
			c.remarkf(ByHand, "%q is not possible; set spec.service.type to one of %v", kind, allowed)
			return
		}
		c.spec().Service.Type = core.ServiceType(kind)
		c.remarkf(Taken, "spec.service.type")
	}),
	intField("spec.service.externalPort", func(c *conversion, n int32) {
		if n > 65535 {
			c.remarkf(ByHand, "%d is no port; set spec.service.port", n)
			return
		}
		c.spec().Service.Port = n
		c.remarkf(Taken, "spec.service.port, the port of the Service; StorageOS had the two ports the other way round")
	}),
	intField("spec.service.internalPort", func(c *conversion, n int32) {
		if n != 0 && n < 1024 || n > 65535 || n == 9090 {
			c.remarkf(ByHand, "%d is not possible for the controller, which runs without privileges and has its metrics at 9090; set spec.service.targetPort, or leave it out", n)
			return
		}
		c.spec().Service.TargetPort = n
		c.remarkf(Taken, "spec.service.targetPort, the port of the pods; StorageOS had the two ports the other way round")
	}),
	stringMap("spec.service.annotations", func(c *conversion, all map[string]string) {
		c.spec().Service.Annotations = all
		c.remarkf(Taken, "spec.service.annotations")
	}),
	boolField("spec.ingress.enable", func(c *conversion, on bool) {
		c.spec().Ingress.Enabled = on
		c.remarkf(Taken, "spec.ingress.enabled")
	}),
	stringField("spec.ingress.hostname", func(c *conversion, name string) {
		c.spec().Ingress.Host = name
		c.remarkf(Taken, "spec.ingress.host, for which alone the Ingress is now")
	}),
	boolField("spec.ingress.tls", func(c *conversion, on bool) {
		c.spec().Ingress.TLS = on
		c.remarkf(Taken, "spec.ingress.tls")
	}),
	stringMap("spec.ingress.annotations", takeIngressAnnotations),
}

// classAnnotation is the predecessor of spec.ingressClassName.
const classAnnotation = "kubernetes.io/ingress.class"

func takeIngressAnnotations(c *conversion, all map[string]string) {
	if class := all[classAnnotation]; class != "" {
		c.spec().Ingress.IngressClassName = class
		delete(all, classAnnotation)
		c.remarkf(Taken, "spec.ingress.ingressClassName, what %s has", classAnnotation)
	}
	if len(all) > 0 {
		c.spec().Ingress.Annotations = all
		c.remarkf(Taken, "spec.ingress.annotations")
	}
}

var imageFields = []field{
	noCounterpart("spec.images.nodeContainer", ownImage),
	noCounterpart("spec.images.initContainer", ownImage),
	mirrored("spec.images.csiNodeDriverRegistrarContainer", "csiNodeDriverRegistrar, where one is needed only if you want that one to register the driver"),
	noCounterpart("spec.images.csiClusterDriverRegistrarContainer", "Kubernetes has the CSIDriver kind for it"),
	mirrored("spec.images.csiExternalProvisionerContainer", "csiProvisioner"),
	mirrored("spec.images.csiExternalAttacherContainer", "csiAttacher, which runs with spec.csi.attachRequired alone"),
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
	boolField("spec.pause", func(c *conversion, on bool) {
		c.spec().Paused = on
		c.remarkf(Taken, "spec.paused")
	}),
	boolField("spec.debug", func(c *conversion, on bool) {
		c.spec().Debug = on
		c.remarkf(Taken, "spec.debug")
	}),
	boolField("spec.disableFencing", func(c *conversion, on bool) {
		if on {
			c.spec().Fencing.Pods = v1beta1.FenceNone
		}
		c.remarkf(Taken, "spec.fencing, which is about volumes in Ceph clusters; pods need the label holdfast.dev/fenced in place of storageos.com/fenced, and spec.fencing.after to be moved without a taint")
	}),
	noCounterpart("spec.disableTelemetry", "nothing is sent to anyone"),
	noCounterpart("spec.disableTCMU", "volumes are loop devices or directories"),
	noCounterpart("spec.forceTCMU", "volumes are loop devices or directories"),
	noCounterpart("spec.disableScheduler", "there is no second scheduler; that of Kubernetes gets the capacity of each node"),
}

var placeFields = []field{
	typedField("spec.nodeSelectorTerms", func(c *conversion, terms *[]core.NodeSelectorTerm) {
		c.spec().NodeSelectorTerms = *terms
		c.remarkf(Taken, "spec.nodeSelectorTerms, as the scheduler reads them: a node must match all of one term; for StorageOS one expression of it was enough to join")
	}),
	typedField("spec.tolerations", func(c *conversion, all *[]core.Toleration) {
		c.spec().Tolerations = *all
		c.remarkf(Taken, "spec.tolerations; node pods tolerate every taint without them")
	}),
	typedField("spec.resources", func(c *conversion, r *core.ResourceRequirements) {
		c.spec().Resources = *r
		c.remarkf(Taken, "spec.resources, of Holdfast's own containers; they need far less than StorageOS did")
	}),
	stringField("spec.k8sDistro", func(c *conversion, distro string) {
		c.spec().Distribution = distro
		c.remarkf(Taken, "spec.distribution")
	}),
}
