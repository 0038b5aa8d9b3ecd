package dashboard

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// tokenHeader carries the token of requests that change something.
const tokenHeader = "X-Rota-Token"

// policy lets the page load its own files and nothing else, and keeps scripts from parsing text as HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"

// guard refuses what other sites have a browser ask, and sets the headers that bind the page.
func guard(hosts []string, next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !known(r.Host, hosts) {
			refuse(w, http.StatusMisdirectedRequest,
				"the dashboard does not answer for this host name: use the address that `rota` printed")
			return
		}
		// Only the page itself may be asked for from elsewhere, by a link. Browsers that are older than this header cannot
		// read the answers, but would have the questions asked.
		site := r.Header.Get("Sec-Fetch-Site")
		if r.URL.Path != "/" && site != "" && site != "same-origin" && site != "none" {
			refuse(w, http.StatusForbidden, "only the dashboard's own page may ask this")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// known reports whether a request may have this Host header. A site that points its own name at this address (DNS
// rebinding) has its name in it. So IP addresses are harmless.
func known(host string, hosts []string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "localhost" || slices.Contains(hosts, name) {
		return true
	}
	_, err = netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil
}

// same compares without telling by the time that it takes.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
