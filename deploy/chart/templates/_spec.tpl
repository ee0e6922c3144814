{{/* The spec of the StorageCluster: the value cluster, and those that have a place of their own. */}}
{{- define "holdfast.spec" }}
{{- $values := .Values }}{{ $spec := deepCopy ($values.cluster | default dict) }}
{{- $global := $values.global | default dict }}{{ $image := $values.image | default dict }}
{{- with $global.imageRegistry }}{{ $_ := set $spec "imageRegistry" . }}{{ end }}
{{- with concat ($global.imagePullSecrets | default list) ($values.imagePullSecrets | default list) | uniq }}{{ $_ := set $spec "imagePullSecrets" . }}{{ end }}
{{- with $image.pullPolicy }}{{ $_ := set $spec "imagePullPolicy" . }}{{ end }}
{{- if or $image.repository $image.tag $image.digest }}
{{- $own := $image.repository | default (include "holdfast.image" (list $spec "holdfast/holdfast")) }}
{{- if or $image.tag (not $image.digest) }}{{ $own = printf "%s:%s" $own ($image.tag | default .Chart.AppVersion) }}{{ end }}
{{- with $image.digest }}{{ $own = printf "%s@%s" $own . }}{{ end }}
{{- $_ := set $spec "images" (merge (dict "holdfast" $own) ($spec.images | default dict)) }}
{{- end }}
{{- if hasKey $values "defaultClass" }}{{ $_ := set $spec "defaultClass" $values.defaultClass }}{{ end }}
{{- $controller := deepCopy ($values.controller | default dict) }}
{{- if and $values.singleNode (not $controller.replicas) (ne ($controller.kind | default "") "StatefulSet") }}{{ $_ := set $controller "replicas" 1 }}{{ end }}
{{- with $controller }}{{ $_ := set $spec "controller" . }}{{ end }}
{{- with $values.node }}{{ $_ := set $spec "node" . }}{{ end }}
{{- $monitor := dig "podMonitor" dict ($values.monitoring | default dict) }}
{{- with $monitor.labels }}{{ $_ := set $spec "monitoring" (dict "labels" .) }}{{ end }}
{{- if hasKey $monitor "enabled" }}{{ $_ := set $spec "monitoring" (set ($spec.monitoring | default dict) "enabled" $monitor.enabled) }}{{ end }}
{{- toYaml $spec }}
{{- end }}

{{/* The class to use: the default one of the spec, or the first. */}}
{{- define "holdfast.class" }}
{{- $classes := (fromYaml (include "holdfast.spec" .)).storageClasses | default (list (dict "name" "holdfast")) }}
{{- $class := (first $classes).name }}
{{- range $classes }}{{ if .default }}{{ $class = .name }}{{ end }}{{ end }}
{{- $class }}
{{- end }}

{{/* An image in the registry of the spec, as the operator names it. The arguments are the spec and the image. */}}
{{- define "holdfast.image" }}
{{- $registry := (index . 0).imageRegistry }}{{ $image := index . 1 }}
{{- if $registry }}{{ printf "%s/%s" $registry (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $image "") }}{{ else }}{{ $image }}{{ end }}
{{- end }}
