{{/* Changes the controller's Deployment by the spec of the StorageCluster. The arguments are the chart and the Deployment. */}}
{{- define "holdfast.controller" }}
{{- $chart := index . 0 }}{{ $object := index . 1 }}
{{- $cluster := $chart.Values.cluster }}{{ $csi := $cluster.csi | default dict }}
{{- $pod := $object.spec.template.spec }}
{{- $_ := set $object.metadata.labels "app.kubernetes.io/version" $chart.Chart.AppVersion }}
{{- $_ := set $object.spec "replicas" ($csi.replicas | default $object.spec.replicas) }}
{{- with $cluster.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- with $cluster.priorityClass }}{{ $_ := set $pod "priorityClassName" . }}{{ end }}
{{- with $cluster.tolerations }}{{ $_ := set $pod "tolerations" (concat $pod.tolerations .) }}{{ end }}
{{- include "holdfast.main" . }}
{{- include "holdfast.sidecars" . }}
{{- if eq ($csi.deploymentStrategy | default "") "StatefulSet" }}{{ include "holdfast.statefulSet" $object }}{{ end }}
{{- end }}

{{/* The container of Holdfast itself. */}}
{{- define "holdfast.main" }}
{{- $chart := index . 0 }}{{ $main := first (index . 1).spec.template.spec.containers }}
{{- $cluster := $chart.Values.cluster }}
{{- $_ := set $main "image" (dig "images" "holdfast" "" $cluster | default (printf "%s%s" (trimSuffix "dev" $main.image) $chart.Chart.AppVersion)) }}
{{- $port := dig "service" "internalPort" 0 $cluster | int | default 5705 }}
{{- range $main.ports }}{{ if eq .name "api" }}{{ $_ := set . "containerPort" $port }}{{ end }}{{ end }}
{{- $args := list }}
{{- range $main.args }}{{ $args = append $args (regexReplaceAll "^--api-address=.*" . (printf "--api-address=:%d" $port)) }}{{ end }}
{{- if and (dig "csi" "enable" true $cluster) (dig "csi" "attach" false $cluster) }}{{ $args = append $args "--attach" }}{{ end }}
{{- $_ := set $main "args" $args }}
{{- with $cluster.resources }}{{ $_ := set $main "resources" . }}{{ end }}
{{- end }}

{{/* The containers beside it. */}}
{{- define "holdfast.sidecars" }}
{{- $chart := index . 0 }}{{ $pod := (index . 1).spec.template.spec }}
{{- $cluster := $chart.Values.cluster }}{{ $images := $cluster.images | default dict }}
{{- $fields := dict "csi-provisioner" "csiProvisioner" "csi-resizer" "csiResizer" "csi-snapshotter" "csiSnapshotter" "csi-attacher" "csiAttacher" }}
{{- $all := $pod.containers }}
{{- range (splitList "\n---\n" ($chart.Files.Get "files/sidecars.yaml") | first | fromYaml).template.spec.containers }}
{{- if and (eq .name "csi-attacher") (dig "csi" "attach" false $cluster) }}{{ $all = append $all . }}{{ end }}
{{- end }}
{{- if not (dig "csi" "enable" true $cluster) }}{{ $all = list (first $all) }}{{ end }}
{{- range $container := rest $all }}
{{- with get $images (get $fields .name) }}{{ $_ := set $container "image" . }}{{ end }}
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
