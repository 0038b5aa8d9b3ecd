package front

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Files and names of Envoy.
const (
	EnvoyFile = "envoy.yaml"
	// EndpointsFile has the servers. Envoy reads it again when it is replaced.
	EndpointsFile = "endpoints.yaml"
	// envoyAdminSocket is in RunDir. It can do anything to Envoy, so only root may use it.
	envoyAdminSocket = "admin.sock"
)

// First lines of the files.
const (
	envoyMark     = "# Envoy before the API servers, written by `rota front`. The servers are in " + EndpointsFile + ".\n"
	endpointsMark = "# The API servers. `rota front agent` replaces this file when endpoints change.\n"
)

type (
	object = map[string]any
	list   = []any
)

// typed is a message of Envoy in an Any.
func typed(kind string, fields object) object {
	fields["@type"] = "type.googleapis.com/" + kind
	return fields
}

// seconds writes a duration as the JSON of Protocol Buffers has it.
func seconds(d metav1.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }

// Envoy is the text of envoy.yaml, the bootstrap. It names the file with the endpoints and has none itself.
func (f *Front) Envoy() ([]byte, error) {
	text, err := yaml.Marshal(object{
		"node": object{"id": "rota-front", "cluster": "rota-front"},
		"admin": object{"address": object{"pipe": object{
			"path": f.RunDir + "/" + envoyAdminSocket, "mode": 0o600,
		}}},
		"static_resources": object{
			"listeners": list{f.envoyClients(), f.envoyAdmin()},
			"clusters":  list{f.envoyServers(), f.envoyAdminCluster()},
		},
	})
	return append([]byte(envoyMark), text...), err
}

// envoyClients passes TCP through: TLS is between client and API server.
func (f *Front) envoyClients() object {
	option := func(level, name, value int) object {
		return object{"level": level, "name": name, "int_value": value, "state": "STATE_PREBIND"}
	}
	return object{
		"name": "clients", "address": socket(f.Listen),
		// Clients that are gone without a word are noticed within 25 s: SO_KEEPALIVE, TCP_KEEPIDLE, -INTVL and -CNT of Linux.
		"socket_options": list{option(1, 9, 1), option(6, 4, 10), option(6, 5, 5), option(6, 6, 3)},
		"filter_chains": list{object{"filters": list{object{
			"name": "envoy.filters.network.tcp_proxy",
			"typed_config": typed("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", object{
				"stat_prefix": "clients", "cluster": Backend, "max_connect_attempts": 4,
				"idle_timeout": seconds(f.IdleTimeout),
			}),
		}}}},
	}
}

// envoyServers is the cluster with all API servers.
func (f *Front) envoyServers() object {
	interval := seconds(f.Interval)
	context := object{
		"trusted_ca": object{"filename": f.CA},
		"match_typed_subject_alt_names": list{object{
			"san_type": "DNS", "matcher": object{"exact": f.ServerName},
		}},
	}
	tls := object{"validation_context": context}
	if f.Client != "" {
		file := object{"filename": f.Client}
		tls["tls_certificates"] = list{object{"certificate_chain": file, "private_key": file}}
	}
	balance := object{}
	if f.SlowStart.Duration > 0 {
		balance["slow_start_config"] = object{"slow_start_window": seconds(f.SlowStart)}
	}
	return object{
		"name": Backend, "type": "EDS", "connect_timeout": seconds(f.Timeout),
		"eds_cluster_config": object{"eds_config": object{
			"resource_api_version": "V3",
			"path_config_source": object{
				"path": f.Dir + "/" + EndpointsFile, "watched_directory": object{"path": f.Dir},
			},
		}},
		"lb_policy": "LEAST_REQUEST", "least_request_lb_config": balance,
		// While no server is healthy, of none of the priorities, all get connections: when etcd has no leader they still
		// answer. One that is healthy is enough to end that, see overprovisioning_factor in the endpoints.
		"common_lb_config": object{"healthy_panic_threshold": object{"value": 1}},
		// Clients of a server that is down lose their connections to it.
		"close_connections_on_host_health_failure": true,
		"circuit_breakers": object{"thresholds": list{object{
			"max_connections": f.MaxConnections, "max_pending_requests": f.MaxConnections, "max_requests": f.MaxConnections,
		}}},
		"upstream_connection_options": object{"tcp_keepalive": object{
			"keepalive_time": 10, "keepalive_interval": 5, "keepalive_probes": 3,
		}},
		"health_checks": list{object{
			"timeout": seconds(f.Timeout), "interval": interval, "no_traffic_interval": interval,
			"unhealthy_edge_interval": "0.1s", "unhealthy_threshold": 2, "healthy_threshold": 2, "reuse_connection": false,
			"http_health_check": object{
				"path": "/readyz", "host": f.ServerName,
				// Without, one answer that it is not ready would be enough to cut its connections.
				"retriable_statuses": list{object{"start": 400, "end": 600}},
			},
			// Only the checks speak TLS; connections of clients already do.
			"transport_socket_match_criteria": object{"check": "tls"},
		}},
		"transport_socket_matches": list{object{
			"name": "check", "match": object{"check": "tls"},
			"transport_socket": object{
				"name": "envoy.transport_sockets.tls",
				"typed_config": typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", object{
					"sni": f.ServerName, "common_tls_context": tls,
				}),
			},
		}},
	}
}

// envoyAdmin serves health and metrics, and nothing else of Envoy's admin interface.
func (f *Front) envoyAdmin() object {
	route := func(path, to string) object {
		return object{"match": object{"path": path}, "route": object{"cluster": "admin", "prefix_rewrite": to}}
	}
	return object{
		"name": "admin", "address": socket(f.Admin),
		"filter_chains": list{object{"filters": list{object{
			"name": "envoy.filters.network.http_connection_manager",
			"typed_config": typed(
				"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", object{
					"stat_prefix": "admin",
					"http_filters": list{object{
						"name":         "envoy.filters.http.router",
						"typed_config": typed("envoy.extensions.filters.http.router.v3.Router", object{}),
					}},
					"route_config": object{"name": "admin", "virtual_hosts": list{object{
						"name": "admin", "domains": list{"*"},
						"routes": list{route("/healthz", "/ready"), route("/metrics", "/stats/prometheus")},
					}}},
				}),
		}}}},
	}
}

func (f *Front) envoyAdminCluster() object {
	return object{
		"name": "admin", "type": "STATIC", "connect_timeout": "1s",
		"load_assignment": object{"cluster_name": "admin", "endpoints": list{object{"lb_endpoints": list{object{
			"endpoint": object{"address": object{"pipe": object{"path": f.RunDir + "/" + envoyAdminSocket}}},
		}}}}},
	}
}

// EnvoyEndpoints is the text of endpoints.yaml. servers are as Admit returns them.
func (f *Front) EnvoyEndpoints(servers []Server) ([]byte, error) {
	var tiers list
	tier := func(name string, endpoints list) {
		if len(endpoints) > 0 { // Envoy wants priorities without a gap
			tiers = append(tiers, object{
				"priority": len(tiers), "locality": object{"zone": name}, "lb_endpoints": endpoints,
			})
		}
	}
	var first, second list
	for _, s := range servers {
		e := object{"endpoint": object{"address": socket(s.Address)}}
		if s.Draining {
			e["health_status"] = "DRAINING"
		}
		first = append(first, e)
	}
	for _, address := range f.Static {
		second = append(second, object{"endpoint": object{"address": socket(address)}})
	}
	tier("deployment", first)
	tier("static", second)
	assignment := typed("envoy.config.endpoint.v3.ClusterLoadAssignment", object{
		"cluster_name": Backend, "endpoints": tiers,
		// One server that is up is enough to keep the static ones out. By default they would get connections as soon as a
		// third of the Deployment's is down.
		"policy": object{"overprovisioning_factor": 100_000},
	})
	text, err := yaml.Marshal(list{assignment})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	text, err = yaml.Marshal(object{
		"version_info": hex.EncodeToString(sum[:8]), "resources": list{assignment},
	})
	return append([]byte(endpointsMark), text...), err
}

// socket is an address of Envoy.
func socket(address string) object {
	a, _ := parseAddress(address)
	fields := object{"address": a.Addr().String(), "port_value": a.Port()}
	if a.Addr() == netip.IPv6Unspecified() {
		fields["ipv4_compat"] = true // as HAProxy does
	}
	return object{"socket_address": fields}
}
