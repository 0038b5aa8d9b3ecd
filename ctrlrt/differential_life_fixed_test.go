package ctrlrt_test

func add(kind, way string) lifeStep { return lifeStep{do: anAdd, kind: kind, way: way} }

func do(what string) lifeStep { return lifeStep{do: what} }

// fixedLives are lives that chance would hardly make, and those that differed once: those with a second Start.
var fixedLives = []lifeScript{
	{grace: lifeGrace},
	{grace: lifeGrace, steps: []lifeStep{ // everything that one may add
		add(aFunction, runs), add(forTheLeader, runs), add(forEveryone, runs), add(warmedLeader, runs),
		add(warmedForEveryone, runs), add(aServer, runs), add(leadersServer, runs), add(hasACache, runs), do(theWebhooks),
		do(aHealthCheck), do(aReadyCheck), do(aMetricsHandler), do(theElection), do(theSync), do(aRead), do(theOptions),
		do(aStart), do(theProbes), do(theElection), do(theSync), do(aRead), do(theOptions), do(theWebhooks),
		do(aHealthCheck), do(aReadyCheck), do(aMetricsHandler), do(aStart), do(aCancel), do(aStart), do(aHealthCheck),
		add(aFunction, runs), add(forEveryone, runs), add(hasACache, runs), do(theWebhooks), do(aRead), do(aWrite),
	}},
	{grace: lifeGrace, steps: []lifeStep{ // everything is added late
		do(aStart), add(aFunction, runs), add(forTheLeader, runs), add(forEveryone, runs), add(warmedLeader, runs),
		add(warmedForEveryone, runs), add(aServer, runs), add(leadersServer, runs), add(hasACache, runs), do(theWebhooks),
	}},
	{grace: lifeGrace, anothers: true, steps: []lifeStep{ // a replica that does not lead
		add(aFunction, runs), add(forEveryone, runs), add(warmedLeader, runs), add(leadersServer, runs), do(aStart),
		add(forTheLeader, runs), add(warmedLeader, runs), do(theElection), do(theProbes),
	}},
	{grace: lifeGrace, steps: []lifeStep{ // while a cache syncs
		add(hasASlowCache, runs), add(forEveryone, runs), add(aFunction, runs), add(aServer, runs), do(aStart),
		do(theProbes), do(theElection), do(aRead), do(aWrite), do(aHealthCheck), add(forEveryone, runs), do(aStart),
		do(aRelease), do(theProbes),
	}},
	{grace: lifeGrace, steps: []lifeStep{ // ended while a cache syncs
		add(hasASlowCache, runs), add(forEveryone, runs), add(aFunction, runs), do(aStart), do(aCancel), do(aRelease),
	}},
	{grace: lifeGrace, steps: []lifeStep{ // ended before it starts
		do(aCancel), add(forEveryone, runs), add(hasACache, runs), do(aStart), do(aStart),
	}},
	{grace: lifeGrace, steps: []lifeStep{do(aStart), do(anOccupation), add(forEveryone, runs), do(aCancel)}},
	{grace: lifeGrace, steps: []lifeStep{do(aStart), add(forEveryone, lingers), do(aTheft)}},
	{grace: shortGrace, steps: []lifeStep{add(aFunction, lingers), do(aStart), do(aCancel)}},
	{grace: shortGrace, steps: []lifeStep{add(forEveryone, lingers), do(aStart), do(aCancel)}},
	{grace: 0, steps: []lifeStep{add(forEveryone, lingers), add(aFunction, lingers), do(aStart), do(aCancel)}},
	{grace: -1, steps: []lifeStep{ // it waits for ever
		add(forEveryone, lingers), add(aFunction, lingers), do(aStart), do(aCancel), add(forEveryone, runs),
		add(aFunction, runs), add(hasACache, runs), do(aRelease),
	}},
	{grace: lifeGrace, steps: []lifeStep{ // the leader's runnable lingers, and fails when others have stopped
		add(aFunction, lingers), add(forTheLeader, runs), add(forEveryone, runs), do(aStart),
		{do: aFailure, back: 3}, do(aRead), do(aStart), do(aRelease),
	}},
	{grace: lifeGrace, steps: []lifeStep{add(forEveryone, fails), do(aStart)}},
	{grace: lifeGrace, steps: []lifeStep{add(aFunction, fails), do(aStart)}},
	{grace: lifeGrace, steps: []lifeStep{add(aServer, runs), do(aStart), {do: aFailure, back: 2}}},
	{grace: lifeGrace, steps: []lifeStep{add(aFunction, returns), do(aStart), add(forEveryone, returns)}},
	{grace: lifeGrace, anothers: true, steps: []lifeStep{add(bareCache, runs), do(aStart)}},
	{grace: lifeGrace, unled: true, steps: []lifeStep{add(forEveryone, runs), do(aStart), add(forEveryone, runs)}},
	{grace: lifeGrace, unled: true, steps: []lifeStep{add(aFunction, runs), do(aStart)}},
	{grace: lifeGrace, unled: true, steps: []lifeStep{do(theElection), do(aStart)}},
	{grace: lifeGrace, unled: true, steps: []lifeStep{do(aStart), add(aFunction, runs)}},
}
