{{- /* One entry for each section of each page: its heading, where it is, and its words. */ -}}
{{- $entries := slice -}}
{{- range where site.Pages "Kind" "in" (slice "page" "home") -}}
  {{- $title := partial "title.html" . -}}
  {{- $url := strings.TrimPrefix "/" .RelPermalink -}}
  {{- range split (replaceRE `<(h[1-6]) id=` "<cut/><$1 id=" .Content) "<cut/>" -}}
    {{- $id := "" -}}{{- with findRESubmatch `^<h[1-6] id="?([^" >]+)` . 1 -}}{{- $id = index . 0 1 -}}{{- end -}}
    {{- $heading := "" -}}{{- with findRESubmatch `(?s)^<h[2-6][^>]*>(.*?)<a class="?anchor` . 1 -}}{{- $heading = index . 0 1 | plainify | htmlUnescape -}}{{- end -}}
    {{- $text := replaceRE `(?s)^<h[1-6].*?</h[1-6]>` "" . | plainify | htmlUnescape -}}
    {{- $text = strings.TrimSpace (replaceRE `\s+` " " $text) -}}
    {{- if or $text $heading -}}
      {{- $entries = $entries | append (dict "page" $title "heading" $heading "url" (cond (ne $heading "") (printf "%s#%s" $url $id) $url) "text" $text) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
window.searchIndex = {{ $entries | jsonify }};
