{{/* Changes the controller's Deployment by the spec of the StorageCluster. The arguments are the chart, the Deployment and the spec. */}}
{{- define "holdfast.controller" }}
{{- $chart := index . 0 }}{{ $object := index . 1 }}{{ $cluster := index . 2 }}
{{- $controller := $cluster.controller | default dict }}
{{- $pod := $object.spec.template.spec }}
{{- $_ := set $object.metadata.labels "app.kubernetes.io/version" $chart.Chart.AppVersion }}
{{- $_ := set $object.metadata.annotations "holdfast.dev/manifest" $chart.Chart.AppVersion }}
{{- $_ := set $object.spec "replicas" ($controller.replicas | default $object.spec.replicas) }}
{{- with $cluster.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- with $cluster.priorityClassName }}{{ $_ := set $pod "priorityClassName" . }}{{ end }}
{{- with $cluster.tolerations }}{{ $_ := set $pod "tolerations" (concat $pod.tolerations .) }}{{ end }}
{{- include "holdfast.main" . }}
{{- include "holdfast.sidecars" . }}
{{- with $cluster.imagePullPolicy }}{{ $policy := . }}
{{- range $container := $pod.containers }}{{ $_ := set $container "imagePullPolicy" $policy }}{{ end }}
{{- end }}
{{- if eq ($controller.kind | default "") "StatefulSet" }}{{ include "holdfast.statefulSet" $object }}{{ end }}
{{- include "holdfast.pods" (list $object.spec.template ($cluster.controller | default dict)) }}
{{- end }}

{{/* What the spec says of the controller's pods alone. The arguments are their template and spec.controller. */}}
{{- define "holdfast.pods" }}
{{- $template := index . 0 }}{{ $pod := $template.spec }}{{ $controller := index . 1 }}
{{- $main := first $pod.containers }}
{{- $selector := dict "matchLabels" (deepCopy $template.metadata.labels) }}
{{- range $key, $value := $controller.podAnnotations }}{{ $_ := set $template.metadata.annotations $key $value }}{{ end }}
{{- range $key, $value := $controller.podLabels }}{{ $_ := set $template.metadata.labels $key $value }}{{ end }}
{{- range $key, $value := $controller.nodeSelector }}{{ $_ := set $pod.nodeSelector $key $value }}{{ end }}
{{- with $controller.affinity }}{{ $_ := set $pod "affinity" . }}{{ end }}
{{- with $controller.tolerations }}{{ $_ := set $pod "tolerations" (concat $pod.tolerations .) }}{{ end }}
{{- with $controller.priorityClassName }}{{ $_ := set $pod "priorityClassName" . }}{{ end }}
{{- with $controller.topologySpreadConstraints }}
{{- range $constraint := . }}{{ if not $constraint.labelSelector }}{{ $_ := set $constraint "labelSelector" $selector }}{{ end }}{{ end }}
{{- $_ := set $pod "topologySpreadConstraints" . }}
{{- end }}
{{- with $controller.resources }}{{ $_ := set $main "resources" . }}{{ end }}
{{- with $controller.extraArgs }}{{ $_ := set $main "args" (concat $main.args .) }}{{ end }}
{{- end }}

{{/* The container of Holdfast itself. */}}
{{- define "holdfast.main" }}
{{- $chart := index . 0 }}{{ $main := first (index . 1).spec.template.spec.containers }}{{ $cluster := index . 2 }}
{{- $_ := set $main "image" (include "holdfast.own" (list $chart $cluster)) }}
{{- $port := dig "service" "targetPort" 0 $cluster | int | default 5705 }}
{{- range $main.ports }}{{ if eq .name "api" }}{{ $_ := set . "containerPort" $port }}{{ end }}{{ end }}
{{- $args := list }}
{{- range $main.args }}{{ $args = append $args (regexReplaceAll "^--api-address=.*" . (printf "--api-address=:%d" $port)) }}{{ end }}
{{- if and (dig "csi" "enabled" true $cluster) (include "holdfast.attaches" $cluster) }}{{ $args = append $args "--attach" }}{{ end }}
{{- $_ := set $main "args" $args }}
{{- with $cluster.resources }}{{ $_ := set $main "resources" . }}{{ end }}
{{- end }}

{{/* Whether volumes are attached, empty if not: those of pools in Ceph clusters always are. The argument is the spec. */}}
{{- define "holdfast.attaches" }}
{{- $attaches := false }}
{{- range .pools }}{{ if .ceph }}{{ $attaches = true }}{{ end }}{{ end }}
{{- if $attaches }}true{{ end }}
{{- end }}

{{/* The image of Holdfast. The arguments are the chart and the spec. */}}
{{- define "holdfast.own" }}
{{- $chart := index . 0 }}{{ $cluster := index . 1 }}
{{- dig "images" "holdfast" "" $cluster | default (include "holdfast.image" (list $cluster (printf "holdfast/holdfast:%s" $chart.Chart.AppVersion))) }}
{{- end }}

{{/* The containers beside it. */}}
{{- define "holdfast.sidecars" }}
{{- $chart := index . 0 }}{{ $pod := (index . 1).spec.template.spec }}{{ $cluster := index . 2 }}
{{- $images := $cluster.images | default dict }}
{{- $fields := dict "csi-provisioner" "csiProvisioner" "csi-resizer" "csiResizer" "csi-snapshotter" "csiSnapshotter" "csi-attacher" "csiAttacher" }}
{{- $all := $pod.containers }}
{{- range (splitList "\n---\n" ($chart.Files.Get "files/sidecars.yaml") | first | fromYaml).template.spec.containers }}
{{- if and (eq .name "csi-attacher") (include "holdfast.attaches" $cluster) }}{{ $all = append $all . }}{{ end }}
{{- end }}
{{- if not (dig "csi" "enabled" true $cluster) }}{{ $all = list (first $all) }}{{ end }}
{{- range $container := rest $all }}
{{- $_ := set $container "image" (get $images (get $fields .name) | default (include "holdfast.image" (list $cluster .image))) }}
{{- if $cluster.debug }}{{ $_ := set $container "args" (append $container.args "--v=5") }}{{ end }}
{{- end }}
{{- $_ := set $pod "containers" $all }}
{{- end }}

{{/* Makes a StatefulSet of the Deployment. */}}
{{- define "holdfast.statefulSet" }}
{{- $_ := set . "kind" "StatefulSet" }}
{{- $_ := unset .spec "strategy" }}
{{- $_ := set .spec "serviceName" "holdfast-controller" }}
{{- $_ := set .spec "podManagementPolicy" "Parallel" }}
{{- $_ := set .spec "updateStrategy" (dict "type" "RollingUpdate") }}
{{- range .spec.template.spec.topologySpreadConstraints }}{{ $_ := set . "matchLabelKeys" (list "controller-revision-hash") }}{{ end }}
{{- range $container := .spec.template.spec.containers }}
{{- $args := list }}
{{- range $container.args }}{{ $args = append $args (regexReplaceAll "^--capacity-ownerref-level=.*" . "--capacity-ownerref-level=1") }}{{ end }}
{{- $_ := set $container "args" $args }}
{{- end }}
{{- end }}
