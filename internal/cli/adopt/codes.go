package adopt

// Page is where each kind of finding has a line.
const Page = "https://github.com/rota-dev/rota/blob/main/docs/adopt.md"

// Codes of findings.
const (
	codeVersion        = "Version"
	codeBroken         = "NotCompiled"
	codeManager        = "Manager"
	codeAdopted        = "Adopted"
	codeManagers       = "SeveralManagers"
	codeUnseen         = "NotSeen"
	codeElection       = "LeaderElection"
	codeElectionOwn    = "OwnLeaderElection"
	codeNoElection     = "NoLeaderElection"
	codeOption         = "ManagerOption"
	codeProbes         = "NoProbes"
	codeReadyName      = "ReadinessName"
	codeSharded        = "ShardedController"
	codeDuty           = "DutyController"
	codeByHand         = "ControllerByHand"
	codeWorkers        = "Workers"
	codeWatches        = "Watches"
	codeRawSource      = "RawSource"
	codeListOwn        = "ListOfShare"
	codeListMapped     = "ListInHandler"
	codeListChildren   = "ListOfChildren"
	codeListOther      = "ListOfOthers"
	codeListIndex      = "ListByIndex"
	codeListUnknown    = "ListOfUnknown"
	codeIndex          = "FieldIndex"
	codeRunnable       = "Runnable"
	codeRunnableAll    = "RunnableEverywhere"
	codeElected        = "Elected"
	codeInformer       = "CacheInformer"
	codeClientInformer = "ClientInformer"
	codeClient         = "OwnClient"
	codeQueue          = "OwnQueue"
	codeMemory         = "Memory"
	codeExpectations   = "Expectations"
	codeGoroutine      = "Goroutine"
	codeContext        = "Context"
	codeWebhook        = "Webhook"
	codeConversion     = "Conversion"
	codeTests          = "Tests"
	codeLate           = "LateControllers"
	codePermission     = "Permission"
	codeGet            = "PermissionGet"
	codePodEnv         = "PodEnvironment"
	codeGrace          = "GracePeriod"
	codeRollout        = "Rollout"
	codeReplicas       = "Replicas"
	codeReadiness      = "Readiness"
	codeFlag           = "LeaderElectFlag"
	codeOther          = "OtherDeployment"
	codeBundle         = "Bundle"
	codeIgnore         = "Ignore"
	codeNoManifest     = "NoDeployment"
)

// explanation says why a finding matters, and what to write instead. anchor is the section of docs/adopt.md.
type explanation struct {
	why, instead, anchor string
}

const (
	inGo        = "in-the-source"
	inManifests = "in-the-manifests"
)

// codes explains each code.
var codes = map[string]explanation{
	codeVersion: {"Rota is tested with certain versions of controller-runtime and client-go, and needs the lowest of them",
		"", inGo},
	codeBroken: {"what does not compile is not seen, so findings may be missing",
		"make `go build ./... && go vet ./...` pass, and run this again", inGo},
	codeManager: {"the replica joins the rota when this manager starts, and its caches hold the replica's share",
		"r, err := rota.New(cfg, rota.Options{Name: NAME}), and ctrlrt.NewManager(cfg, r, options)", inGo},
	codeAdopted: {"it is one of package ctrlrt already", "", inGo},
	codeManagers: {"one Rota serves one manager", "give each manager a rota.New with a name of its own, or leave those " +
		"stock that have no controllers to share", inGo},
	codeUnseen: {"what makes it is not followed, so nothing is said of it, and findings are missing",
		"call controller-runtime's function where the manager or the controller is made, or look through docs/adopt.md " +
			"for it; name the folder of the program, if this is not it", inGo},
	codeElection: {"with it one replica would do what is not sharded, and the old leader and Rota's replicas could work " +
		"at once while the new version is rolled out",
		"leave LeaderElection out, and name the Lease: rota.Options{LeaderElectionID: …}. Members then wait for the old " +
			"leader (docs/migrate.md)", inGo},
	codeElectionOwn: {"what runs under it runs on one replica, whatever the rota does",
		"make it a duty: r.Duty(name, run), or mgr.AddDuty(name, runnable). With client-go alone r.Work takes its " +
			"place", inGo},
	codeNoElection: {"nothing keeps the old replicas and Rota's from working at once while the new version is rolled out",
		"scale to 0 before the first rollout, or set the strategy Recreate for it", inGo},
	codeOption: {"ctrlrt.NewManager treats this option in another way than a stock manager", "", inGo},
	codeProbes: {"a Pod is ready when its member has joined; a rollout must be able to see that",
		"set HealthProbeBindAddress, and a readiness probe on /readyz", inGo},
	codeReadyName: {"the check of that name is Rota's, and ctrlrt refuses another one", "give it another name", inGo},
	codeSharded: {"its objects can be shared: each replica reconciles those of its slots",
		"ctrlrt.NewControllerManagedBy, and the same calls behind it", inGo},
	codeDuty: {"it is not surely right on a share; as a duty one replica at a time runs it, as under leader election",
		"ctrlrt.NewDutyControllerManagedBy, and the same calls behind it; see what keeps it from being sharded", inGo},
	codeByHand: {"without leader election it would run on every replica, so the start is refused",
		"build it with the builder of package ctrlrt, sharded or as a duty", inGo},
	codeWorkers: {"it holds for each replica: N replicas have N times as many workers, and N rate limiters",
		"divide what must not be exceeded in all by the largest number of replicas", inGo},
	codeWatches: {"every replica caches all objects of the kind. Requests for objects of other replicas are left out, " +
		"since those get the same event", "nothing, if there are few; Owns where an owner is known, or just Get", inGo},
	codeRawSource: {"a source whose events reach one process only wakes objects of that process",
		"write to the object instead, or see that every replica gets the event", inGo},
	codeListOwn: {"List in a sharded controller returns this replica's share, not all objects",
		"ctrlrt.Live as an option for all of them from the API server; mgr.KeepWhole if it is often; ctrlrt.Share if the " +
			"share is meant", inGo},
	codeListMapped: {"in a handler it returns this replica's share, also by an index. The other replicas get the same " +
		"event, and make requests for theirs", "", inGo},
	codeListChildren: {"children are where their owners are, so a list of this object's children is whole. Those " +
		"without an owner are in no cache", "nothing; ctrlrt.Live as an option where children are adopted", inGo},
	codeListOther: {"the API server answers, since this replica's cache holds a share of the kind: a request each time",
		"mgr.KeepWhole for that kind before the manager starts, if it is often", inGo},
	codeListIndex: {"the API server answers, which does not know the manager's indexes, so the list is refused",
		"mgr.KeepWhole for that kind before the manager starts, or Watches of it in this controller", inGo},
	codeListUnknown: {"its kind is not in the source. Of a sharded kind it returns this replica's share, or asks the " +
		"API server",
		"see which kinds come here", inGo},
	codeIndex: {"the index is over this replica's share. Its own controller may list by it, others are refused",
		"mgr.KeepWhole if others list by it", inGo},
	codeRunnable: {"it needs a leader, so without leader election it is refused at the start",
		"mgr.AddDuty(name, runnable): one replica at a time runs it. If every replica is to run it, let it say " +
			"NeedLeaderElection() false", inGo},
	codeRunnableAll: {"it runs on every replica, as it does now", "", inGo},
	codeElected: {"without leader election every replica would go on, so it is refused",
		"mgr.AddDuty for what waits for it, or <-r.Joined() if every replica is to do it", inGo},
	codeInformer: {"the manager's cache holds a share of a sharded kind, and gives out no informer of it",
		"the cache of mgr.Whole(), which holds all objects", inGo},
	codeClientInformer: {"it holds all objects on every replica, and its handlers hear of all of them",
		"nothing, if all replicas need that; else a controller, or rota.ShareInformer (docs/client-go.md)", inGo},
	codeClient: {"writes through it are not checked against the slot, and the next owner does not wait for them",
		"make it of mgr.GetConfig(), or of r.WrapConfig(cfg)", inGo},
	codeQueue: {"all replicas would take all keys from it",
		"rota.NewQueue with an informer of rota.ShareInformer, or a duty (docs/client-go.md)", inGo},
	codeMemory: {"it is lost for an object that moves to another replica, and what one replica notes no other one sees",
		"nothing, if it is a cache that can be lost; else the object's status, a duty, or forget it in OnReset", inGo},
	codeExpectations: {"events that come while a slot is shut are not counted, and the object would wait for them",
		".OnReset(…) on the sharded builder, which forgets what is expected of the object", inGo},
	codeGoroutine: {"it goes on when the object has moved, beside that of the next owner",
		"rota.Go(ctx, func(ctx context.Context) { … }) in place of the go statement", inGo},
	codeContext: {"it does not end when the slot is lost; writes with it are checked by their object alone, and logged",
		"the reconcile's context", inGo},
	codeWebhook: {"it is served by every replica, as it is now. Reads of sharded kinds in it are answered by the API " +
		"server",
		"mgr.Whole() for webhooks that list sharded kinds", inGo},
	codeConversion: {"a member has to list the kind before it is ready, and the API server asks this webhook for that",
		"publishNotReadyAddresses: true in the webhook's Service (docs/troubleshooting.md)", inGo},
	codeLate: {"a controller that is built after the manager has started is refused, unless the member waits for it",
		"r.JoinAfter(reason, built) before anything is set up, and close(built) when they are built", inGo},
	codeTests: {"a sharded controller needs a manager of ctrlrt.NewManager in tests, too",
		"rota.New(cfg, rota.Options{Solo: true}) and ctrlrt.NewManager: no Lease and no wait", inGo},
	codePermission: {"the member ends at its start without it", "", inManifests},
	codeGet: {"Get of another replica's object is answered by the API server; a stock manager gets by with list and watch",
		"add the verb get", inManifests},
	codePodEnv: {"a restarted container takes over from itself without a lease's wait, and a rollout is told from two " +
		"Deployments", "POD_NAME, POD_UID and POD_NAMESPACE by the downward API", inManifests},
	codeGrace: {"a replica that is killed while it hands its share over counts as crashed, and its objects wait for a " +
		"lease",
		"more than rota.Options.LeaveTimeout (25 s) and the manager's GracefulShutdownTimeout (30 s) together", inManifests},
	codeRollout: {"a new replica should have joined before an old one hands its share to it",
		"strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}", inManifests},
	codeReplicas: {"one replica has all objects: nothing is shared", "replicas: 3, or as many as you need, once it runs",
		inManifests},
	codeReadiness: {"a rollout has to wait until a new replica has joined", "a readinessProbe on /readyz", inManifests},
	codeFlag: {"it has no effect any more. A way back to the version with leader election needs it",
		"leave it until nobody wants to go back", inManifests},
	codeOther: {"an operator deploys others, whose Pods need nothing for Rota, so this one is neither looked at nor " +
		"changed",
		"nothing, if it does not run the operator; else bind the operator's role to its ServiceAccount, or see " +
			"docs/deploy.md", inManifests},
	codeBundle: {"OLM installs what is in it, which is neither looked at nor changed",
		"make it anew (`make bundle`) once the manifests are changed; what it is given besides them is in docs/deploy.md",
		inManifests},
	codeIgnore: {"the comment has no effect", "//rota:ignore CODE REASON on the line of the finding, or above it", inGo},
	codeNoManifest: {"what a Pod and its ServiceAccount need could not be looked at",
		"docs/deploy.md lists it, and `rota check --pre` looks at a cluster", inManifests},
}
