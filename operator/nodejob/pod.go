package nodejob

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// JobLabel is the UID of a pod's job, which distinguishes it from an earlier job of the same name.
const JobLabel = "holdfast.dev/node-job"

// nodeAnnotation names the node. Some names are too long for a label.
const nodeAnnotation = "holdfast.dev/node"

const containerName = "job"

func labelsOf(job types.UID) map[string]string {
	return map[string]string{
		v1beta1.NameLabel: v1beta1.AppName, v1beta1.PartOfLabel: v1beta1.AppName, v1beta1.ComponentLabel: "node-job", JobLabel: string(job),
	}
}

// podName is deterministic, so that an attempt is never started twice.
func podName(job *v1beta1.NodeJob, node string, attempt int32) string {
	sum := sha256.Sum256([]byte(string(job.UID) + "/" + node))
	name := strings.ReplaceAll(job.Name, ".", "-")
	return fmt.Sprintf("%s-%s-%d", strings.Trim(name[:min(len(name), 40)], "-"), hex.EncodeToString(sum[:5]), attempt)
}

// slack is added to the deadline of a pod, so that a running controller ends the pod first, and reports why.
const slack = 30 * time.Second

// longest is longer than any job, and fits activeDeadlineSeconds.
const longest = 10 * 365 * 24 * time.Hour

// podOf returns the pod of one attempt. Its deadline ends it after the node's time even if no controller runs.
func podOf(job *v1beta1.NodeJob, w work, s settings, node string, attempt int32, left time.Duration) *core.Pod {
	no, yes, deadline := false, true, int64((min(max(left, 0), longest)+slack)/time.Second)
	pod := &core.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: podName(job, node, attempt), Labels: labelsOf(job.UID),
			Annotations: map[string]string{nodeAnnotation: node},
			// The pods do not block the deletion of the job.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "NodeJob", Name: job.Name, UID: job.UID, Controller: &yes,
			}},
		},
		Spec: core.PodSpec{
			Containers:                   []core.Container{container(w)},
			RestartPolicy:                core.RestartPolicyNever,
			ActiveDeadlineSeconds:        &deadline,
			AutomountServiceAccountToken: &no,
			EnableServiceLinks:           &no,
			ImagePullSecrets:             s.pullSecrets,
			Tolerations:                  job.Spec.Tolerations,
			Affinity:                     kube.NodeAffinity(kube.OnNode(node)),
		},
	}
	if w.hostPath != "" {
		mountHost(&pod.Spec, core.VolumeMount{Name: "host", MountPath: w.mountPath}, w.hostPath)
	}
	if w.records {
		mountHost(&pod.Spec, core.VolumeMount{Name: "disks", MountPath: stateMount + "/disks", ReadOnly: true}, recordsDirectory)
	}
	return pod
}

func mountHost(pod *core.PodSpec, mount core.VolumeMount, dir string) {
	kind := core.HostPathDirectoryOrCreate
	pod.Volumes = append(pod.Volumes, core.Volume{Name: mount.Name, VolumeSource: core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: dir, Type: &kind}}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, mount)
}

func container(w work) core.Container {
	c := core.Container{
		Name: containerName, Image: string(w.image), ImagePullPolicy: core.PullIfNotPresent, Command: w.command, Args: w.args,
		TerminationMessagePolicy: core.TerminationMessageFallbackToLogsOnError,
	}
	if w.privileged {
		c.SecurityContext = &core.SecurityContext{Privileged: &w.privileged}
	}
	return c
}
