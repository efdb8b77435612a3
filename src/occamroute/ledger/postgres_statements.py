"""The rules of a ledger in PostgreSQL's own words: one statement does a whole operation, and decides by itself.

So nobody ever waits for a client while the ledger is locked, however far away it is and even if it is stopped. Each
statement is put together from the moment (the store's time and how the ledger stands), the one change that it makes,
and the books that follow from any change. Tables and rules are those of ``embedded``.
"""

from __future__ import annotations

from occamroute.ledger.base import MOST
from occamroute.ledger.bookkeeping import REPLIES_FORGOTTEN, REPLY_LIFE

__all__ = [
    "ADD_REPLIES",
    "ARE_THERE",
    "ASK_HOLD",
    "ASK_REPLY",
    "ASK_STANDING",
    "ASK_TIME",
    "BEGIN",
    "CLIENTS",
    "DO_CORRECT",
    "DO_END",
    "DO_END_WITH_REPLY",
    "DO_EXPIRE",
    "DO_FOLD",
    "DO_NOTE_CAP",
    "DO_RESERVE",
    "DO_RESERVE_WITH_REPLY",
    "DROP_CLIENT",
    "ENTRIES",
    "FIND",
    "LOCK",
    "MIGRATE",
    "NEWEST",
    "PREPARED",
    "SCHEMA",
    "SET_CAP",
    "SET_CLIENT",
]

REPLIES = """
CREATE TABLE IF NOT EXISTS occamroute_replies (
    ledger INTEGER NOT NULL, hold_key TEXT NOT NULL, about TEXT NOT NULL, content TEXT NOT NULL,
    expires BIGINT NOT NULL, PRIMARY KEY (ledger, hold_key)
);
CREATE INDEX IF NOT EXISTS occamroute_replies_due ON occamroute_replies (ledger, expires);
"""

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS occamroute_ledgers (
    id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name TEXT NOT NULL UNIQUE, format INTEGER NOT NULL,
    cap BIGINT NOT NULL, time_window TEXT NOT NULL, clock BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS occamroute_clients (
    ledger INTEGER NOT NULL, client TEXT NOT NULL, cap BIGINT NOT NULL, PRIMARY KEY (ledger, client)
);
-- Rows that change with every operation: with room beside them PostgreSQL need not touch their index.
CREATE TABLE IF NOT EXISTS occamroute_accounts (
    ledger INTEGER NOT NULL, scope TEXT NOT NULL, window_start BIGINT NOT NULL,
    held BIGINT NOT NULL CHECK (held >= 0), spent BIGINT NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (ledger, scope, window_start)
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS occamroute_holds (
    ledger INTEGER NOT NULL, hold_key TEXT NOT NULL, client TEXT, window_start BIGINT NOT NULL,
    amount BIGINT NOT NULL, expires BIGINT NOT NULL, state TEXT NOT NULL, maker BIGINT NOT NULL,
    PRIMARY KEY (ledger, hold_key)
);
CREATE INDEX IF NOT EXISTS occamroute_holds_due ON occamroute_holds (ledger, expires) WHERE state = 'held';
CREATE TABLE IF NOT EXISTS occamroute_entries (
    ledger INTEGER NOT NULL, number BIGINT NOT NULL, at BIGINT NOT NULL, event TEXT NOT NULL,
    hold_key TEXT NOT NULL, client TEXT, window_start BIGINT NOT NULL, held BIGINT NOT NULL, spent BIGINT NOT NULL,
    PRIMARY KEY (ledger, number)
);
{REPLIES}"""

# The table that 0.1.0 did not make, in the schema of the others and for all who may use those.
ADD_REPLIES = f"""
SELECT set_config('search_path', quote_ident(nspname), true) FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = 'occamroute_holds'::regclass;
{REPLIES}
DO $$
DECLARE allowed record;
BEGIN
    FOR allowed IN
        SELECT privilege_type AS privilege, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(rolname) END AS grantee
        FROM pg_class CROSS JOIN aclexplode(coalesce(relacl, acldefault('r', relowner)))
        LEFT JOIN pg_roles ON pg_roles.oid = grantee WHERE pg_class.oid = 'occamroute_holds'::regclass
    LOOP
        EXECUTE 'GRANT ' || allowed.privilege || ' ON occamroute_replies TO ' || allowed.grantee;
    END LOOP;
END $$;
"""

# A statement sees what was there when it began, so the lock is a statement of its own, sent in the same message. It
# is held until the end of the transaction, which that message is. The first number keeps it apart from other programs'.
LOCK = "SELECT pg_advisory_xact_lock(1868784481, %(ledger)s);"
# However many leases are over at once, no statement takes longer than it takes to expire these.
AT_ONCE = 1000

# $1 is the ledger.
MOMENT = """
WITH timed AS MATERIALIZED (
    SELECT id, cap, time_window, clock,
        greatest(clock, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
    FROM occamroute_ledgers WHERE id = $1
), moment AS MATERIALIZED (
    SELECT timed.*, CASE time_window WHEN 'total' THEN 0 ELSE
        (extract(epoch FROM date_trunc(time_window, to_timestamp(now / 1000.0), 'UTC')) * 1000)::bigint END AS start,
        EXISTS (
            SELECT FROM occamroute_holds WHERE ledger = id AND state = 'held' AND expires <= now
        ) AS due,
        coalesce((SELECT max(number) FROM occamroute_entries WHERE ledger = id), 0) AS last
    FROM timed
)"""

# $2 is the client, or null.
ACCOUNTS = """, standing AS MATERIALIZED (
    SELECT moment.*, coalesce(everybody.held, 0) AS held, coalesce(everybody.spent, 0) AS spent,
        own.cap AS own_cap, coalesce(mine.held, 0) AS own_held, coalesce(mine.spent, 0) AS own_spent
    FROM moment
    LEFT JOIN occamroute_accounts AS everybody
        ON everybody.ledger = id AND everybody.scope = '' AND everybody.window_start = start
    LEFT JOIN occamroute_clients AS own ON own.ledger = id AND own.client = $2
    LEFT JOIN occamroute_accounts AS mine ON mine.ledger = id AND mine.scope = $2 AND mine.window_start = start
)"""

# From ``changed`` (place, event, hold_key, client, window_start, held, spent): entries, and the latest moment seen,
# now and then, since time may not run backwards, or a window would begin twice.
NOTES = """, noted AS (
    INSERT INTO occamroute_entries
    SELECT id, last + place, now, event, hold_key, client, window_start, held, spent FROM changed, moment
), ticked AS (
    UPDATE occamroute_ledgers AS ledger SET clock = now FROM moment
    WHERE ledger.id = moment.id AND EXISTS (SELECT FROM changed)
        AND (now >= moment.clock + 1000 OR moment.clock < start)
)"""

# Everybody's account, whose scope is empty, and the client's.
SUMS = """, sums AS (
    SELECT id, scope, window_start, sum(held)::bigint AS held, sum(spent)::bigint AS spent
    FROM changed, moment, unnest(ARRAY['', client]) AS scope WHERE scope IS NOT NULL GROUP BY id, scope, window_start
)"""

# An account that is full held less than the entries say: what is taken off is taken off their sum. The new entry is not
# among those that this statement sees.
REBOOKED = f""", booked AS (
    UPDATE occamroute_accounts AS account SET held = account.held + sums.held, spent = CASE
        WHEN sums.spent > {MOST} - account.spent THEN {MOST}
        WHEN sums.spent < 0 AND account.spent = {MOST} THEN (
            SELECT least({MOST}, sum(entry.spent) + sums.spent)::bigint FROM occamroute_entries AS entry
            WHERE entry.ledger = account.ledger AND entry.window_start = account.window_start
                AND (account.scope = '' OR entry.client = account.scope)
        )
        ELSE account.spent + sums.spent END
    FROM sums WHERE ledger = id AND account.scope = sums.scope AND account.window_start = sums.window_start
)"""


def _stored(source: str, key: str, about: str, content: str) -> str:
    """The reply of a hold that ``source`` has changed, and an end to some that are over.

    The moment is a value here, not a table to join: rows then come in the order of the index and need no sorting.
    """
    return f""", stored AS (
    INSERT INTO occamroute_replies SELECT id, hold_key, {about}, {content}, now + {REPLY_LIFE} FROM {source}, moment
    ON CONFLICT (ledger, hold_key)
    DO UPDATE SET about = excluded.about, content = excluded.content, expires = excluded.expires
), over AS (
    SELECT hold_key FROM occamroute_replies
    WHERE ledger = $1 AND expires <= (SELECT now FROM moment) AND hold_key <> {key} AND EXISTS (SELECT FROM {source})
    ORDER BY expires LIMIT {REPLIES_FORGOTTEN}
), forgotten AS (
    DELETE FROM occamroute_replies AS reply USING over WHERE reply.ledger = $1 AND reply.hold_key = over.hold_key
)"""


STANDING = f"""{MOMENT}{ACCOUNTS}
SELECT due, now, start, time_window, cap, held, spent, own_cap, own_held, own_spent FROM standing"""

# More than any cap, and little enough to be subtracted from one.
LARGE = 2**62
# $3 key, $4 amount, $5 lease, $6 maker; $7: even though leases are over that nobody has expired yet.
RESERVING = f"""{MOMENT}{ACCOUNTS}, known AS (
    SELECT amount, state, maker, client FROM occamroute_holds, moment WHERE ledger = id AND hold_key = $3
), fitting AS (
    SELECT standing.*, least(
        cap - held - least(spent, {LARGE}), own_cap - own_held - least(own_spent, {LARGE})
    ) AS available FROM standing
), made AS (
    INSERT INTO occamroute_holds SELECT id, $3, $2, start, $4, now + $5, 'held', $6 FROM fitting
    WHERE ($7 OR NOT due) AND NOT EXISTS (SELECT FROM known) AND $4 <= available
    RETURNING hold_key, client, window_start, amount, state, maker
), changed AS (
    SELECT 1 AS place, 'reserve' AS event, hold_key, client, window_start, amount AS held, 0::bigint AS spent FROM made
){NOTES}{SUMS}, booked AS (
    INSERT INTO occamroute_accounts AS account SELECT * FROM sums
    ON CONFLICT (ledger, scope, window_start) DO UPDATE SET held = account.held + excluded.held
)"""
RESERVED = """
SELECT due, available, hold.amount, hold.state, hold.maker, hold.client FROM fitting
LEFT JOIN (SELECT * FROM known UNION ALL SELECT amount, state, maker, client FROM made) AS hold ON true"""
RESERVE = f"{RESERVING}{RESERVED}"
# $8 what the reply is about, $9 its content.
RESERVE_WITH_REPLY = f"{RESERVING}{_stored('made', '$3', '$8', '$9')}{RESERVED}"

# $2 key. A lease that is over counts as expired although nobody has booked that yet.
HOLD = f"""{MOMENT}
SELECT false, 0, hold.amount,
    CASE WHEN hold.state = 'held' AND hold.expires <= now THEN 'expired' ELSE hold.state END, hold.maker, hold.client
FROM moment LEFT JOIN occamroute_holds AS hold ON hold.ledger = id AND hold.hold_key = $2"""

# $2 key.
REPLY = f"""{MOMENT}
SELECT false, reply.about, reply.content FROM moment
LEFT JOIN occamroute_replies AS reply ON reply.ledger = id AND reply.hold_key = $2 AND reply.expires > now"""

# $2 key, $3 what was spent, $4 "settled" or "released"; $5: even though leases are over.
ENDING = f"""{MOMENT}, known AS (
    SELECT hold_key, client, window_start, amount, state FROM occamroute_holds, moment
    WHERE ledger = id AND hold_key = $2
), ended AS (
    UPDATE occamroute_holds AS hold SET state = $4, expires = now FROM known, moment
    WHERE hold.ledger = moment.id AND hold.hold_key = known.hold_key AND known.state IN ('held', 'expired')
        AND ($5 OR NOT due)
    RETURNING known.*
), changed AS (
    SELECT 1 AS place, CASE $4 WHEN 'settled' THEN 'settle' ELSE 'release' END AS event, hold_key, client, window_start,
        CASE state WHEN 'held' THEN -amount ELSE 0 END AS held,
        $3 - CASE state WHEN 'held' THEN 0 ELSE amount END AS spent
    FROM ended
){NOTES}{SUMS}{REBOOKED}"""
ENDED = """
SELECT due, known.state FROM moment LEFT JOIN known ON true"""
END = f"{ENDING}{ENDED}"
# $6 what the reply is about, $7 its content.
END_WITH_REPLY = f"{ENDING}{_stored('ended', '$2', '$6', '$7')}{ENDED}"

# $2 key, $3 what was spent; $4: even though leases are over. Entries before the reservation are those of an earlier
# hold of this key, whose compaction was interrupted.
CORRECT = f"""{MOMENT}, known AS (
    SELECT hold_key, client, window_start, CASE state WHEN 'held' THEN amount ELSE 0 END AS held, state
    FROM occamroute_holds, moment WHERE ledger = id AND hold_key = $2
), booked_before AS MATERIALIZED (
    SELECT known.*, $3 - coalesce((
        SELECT sum(entry.spent) FROM occamroute_entries AS entry, moment
        WHERE entry.ledger = id AND entry.hold_key = $2 AND entry.event NOT IN ('cap', 'compact') AND number >= (
            SELECT max(number) FROM occamroute_entries
            WHERE ledger = $1 AND hold_key = $2 AND event = 'reserve'
        )
    ), 0)::bigint AS more FROM known
), corrected AS (
    UPDATE occamroute_holds AS hold SET state = 'settled', expires = now FROM booked_before, moment
    WHERE hold.ledger = moment.id AND hold.hold_key = booked_before.hold_key AND ($4 OR NOT due)
        AND (booked_before.held <> 0 OR more <> 0)
    RETURNING booked_before.*
), changed AS (
    SELECT 1 AS place, 'correct' AS event, hold_key, client, window_start, -held AS held, more AS spent FROM corrected
){NOTES}{SUMS}{REBOOKED}
SELECT due, known.state FROM moment LEFT JOIN known ON true"""

EXPIRE = f"""{MOMENT}, over AS (
    SELECT hold_key, expires FROM occamroute_holds
    WHERE ledger = $1 AND state = 'held' AND expires <= (SELECT now FROM moment) ORDER BY expires LIMIT {AT_ONCE}
), expired AS (
    UPDATE occamroute_holds AS hold SET state = 'expired', expires = now FROM over, moment
    WHERE hold.ledger = moment.id AND hold.hold_key = over.hold_key
    RETURNING hold.hold_key, hold.client, hold.window_start, hold.amount, over.expires
), changed AS (
    SELECT row_number() OVER (ORDER BY expires, hold_key) AS place, 'expire' AS event, hold_key, client, window_start,
        -amount AS held, amount AS spent
    FROM expired
){NOTES}{SUMS}{REBOOKED}
SELECT count(*) FROM expired"""

# $2 the entry to begin after; $3 the least age of what is folded, in milliseconds; $4 summaries; $5 how many entries.
FOLD = f"""{MOMENT}, chunk AS MATERIALIZED (
    SELECT * FROM occamroute_entries WHERE ledger = $1 AND number > $2 ORDER BY number LIMIT $5
), foldable AS (
    SELECT chunk.* FROM chunk, moment WHERE at < now - $3 AND (event = 'compact' OR event <> 'cap' AND NOT EXISTS (
        SELECT FROM occamroute_holds AS hold WHERE hold.ledger = $1 AND hold.hold_key = chunk.hold_key
            AND (hold.state = 'held' OR hold.expires >= now - $3)
    ))
    UNION ALL
    SELECT * FROM occamroute_entries WHERE ledger = $1 AND number = ANY ($4) AND event = 'compact'
), grouped AS MATERIALIZED (
    SELECT number, event, hold_key, window_start, client, max(number) OVER alike AS kept, max(at) OVER alike AS latest,
        count(*) OVER alike AS rows, sum(held) OVER alike AS held, sum(spent) OVER alike AS spent,
        sum(CASE event WHEN 'compact' THEN hold_key::bigint ELSE 1 END) OVER alike AS stands_for
    FROM foldable WINDOW alike AS (PARTITION BY window_start, client)
), folded AS MATERIALIZED (
    SELECT * FROM grouped WHERE abs(held) <= {MOST} AND abs(spent) <= {MOST}
), removed AS (
    DELETE FROM occamroute_entries AS entry USING folded
    WHERE entry.ledger = $1 AND entry.number = folded.number AND folded.number <> kept RETURNING entry.number
), summarized AS (
    UPDATE occamroute_entries AS entry SET at = latest, event = 'compact', hold_key = stands_for::text,
        held = folded.held::bigint, spent = folded.spent::bigint
    FROM folded WHERE entry.ledger = $1 AND entry.number = folded.number AND folded.number = kept
        AND (rows > 1 OR folded.event <> 'compact')
), freed AS (
    DELETE FROM occamroute_holds AS hold USING (SELECT DISTINCT hold_key FROM folded WHERE event <> 'compact') AS old
    WHERE hold.ledger = $1 AND hold.hold_key = old.hold_key RETURNING hold.hold_key
), summaries AS (
    SELECT array_agg(window_start ORDER BY number) AS windows, array_agg(client ORDER BY number) AS clients,
        array_agg(number ORDER BY number) AS numbers
    FROM folded WHERE number = kept
)
SELECT (SELECT max(number) FROM chunk),
    coalesce((SELECT at FROM chunk ORDER BY number DESC LIMIT 1) >= now - $3, true),
    (SELECT count(*) FROM removed), (SELECT count(*) FROM freed), windows, clients, numbers
FROM moment, summaries"""

# $2 client, $3 the new cap in words.
NOTE_CAP = f"""{MOMENT}
INSERT INTO occamroute_entries SELECT id, last + 1, now, 'cap', $3, $2, start, 0, 0 FROM moment RETURNING number"""

# Planned once by every connection.
PREPARED = f"""
PREPARE occamroute_standing (integer, text) AS {STANDING};
PREPARE occamroute_reserve (integer, text, text, bigint, bigint, bigint, boolean) AS {RESERVE};
PREPARE occamroute_reserve_with_reply (integer, text, text, bigint, bigint, bigint, boolean, text, text)
    AS {RESERVE_WITH_REPLY};
PREPARE occamroute_hold (integer, text) AS {HOLD};
PREPARE occamroute_reply (integer, text) AS {REPLY};
PREPARE occamroute_end_with_reply (integer, text, bigint, text, boolean, text, text) AS {END_WITH_REPLY};
PREPARE occamroute_end (integer, text, bigint, text, boolean) AS {END};
PREPARE occamroute_correct (integer, text, bigint, boolean) AS {CORRECT};
PREPARE occamroute_fold (integer, bigint, bigint, bigint[], integer) AS {FOLD};
PREPARE occamroute_expire (integer) AS {EXPIRE};
PREPARE occamroute_note_cap (integer, text, text) AS {NOTE_CAP};
"""

# The server's time in milliseconds since 1970. One beyond belief is a division by 0, which undoes the whole message.
ASK_TIME = (
    "SELECT floor(1000 * epoch)::bigint / CASE WHEN 1000 * epoch > %(latest)s THEN 0 ELSE 1 END "
    "FROM (SELECT extract(epoch FROM clock_timestamp()) AS epoch) AS clock;"
)
ASK_STANDING = "EXECUTE occamroute_standing (%(ledger)s, %(client)s);"
ASK_HOLD = "EXECUTE occamroute_hold (%(ledger)s, %(key)s);"
ASK_REPLY = "EXECUTE occamroute_reply (%(ledger)s, %(key)s);"
DO_RESERVE = (
    "EXECUTE occamroute_reserve (%(ledger)s, %(client)s, %(key)s, %(amount)s, %(lease)s, %(maker)s, %(whatever)s);"
)
DO_RESERVE_WITH_REPLY = (
    "EXECUTE occamroute_reserve_with_reply (%(ledger)s, %(client)s, %(key)s, %(amount)s, %(lease)s, %(maker)s, "
    "%(whatever)s, %(about)s, %(content)s);"
)
DO_END = "EXECUTE occamroute_end (%(ledger)s, %(key)s, %(spent)s, %(state)s, %(whatever)s);"
DO_END_WITH_REPLY = (
    "EXECUTE occamroute_end_with_reply (%(ledger)s, %(key)s, %(spent)s, %(state)s, %(whatever)s, %(about)s, "
    "%(content)s);"
)
DO_CORRECT = "EXECUTE occamroute_correct (%(ledger)s, %(key)s, %(spent)s, %(whatever)s);"
DO_FOLD = "EXECUTE occamroute_fold (%(ledger)s, %(after)s, %(keep)s, %(summaries)s::bigint[], %(most)s);"
DO_EXPIRE = "EXECUTE occamroute_expire (%(ledger)s);"
DO_NOTE_CAP = "EXECUTE occamroute_note_cap (%(ledger)s, %(client)s, %(said)s);"
SET_CAP = "UPDATE occamroute_ledgers SET cap = %(cap)s WHERE id = %(ledger)s;"
SET_CLIENT = (
    "INSERT INTO occamroute_clients VALUES (%(ledger)s, %(client)s, %(cap)s) "
    "ON CONFLICT (ledger, client) DO UPDATE SET cap = excluded.cap;"
)
DROP_CLIENT = "DELETE FROM occamroute_clients WHERE ledger = %(ledger)s AND client = %(client)s;"
ENTRIES = (
    "SELECT number, at, event, hold_key, client, window_start, held, spent FROM occamroute_entries "
    "WHERE ledger = %(ledger)s AND number > %(after)s AND number < %(before)s ORDER BY number LIMIT %(limit)s;"
)
NEWEST = ENTRIES.replace("ORDER BY number", "ORDER BY number DESC")

ARE_THERE = "SELECT to_regclass('occamroute_entries'), to_regclass('occamroute_replies');"
FIND = "SELECT id, format, cap, time_window FROM occamroute_ledgers WHERE name = %(name)s;"
BEGIN = (
    "INSERT INTO occamroute_ledgers (name, format, cap, time_window, clock) "
    "VALUES (%(name)s, %(format)s, %(cap)s, %(window)s, 0);"
)
MIGRATE = "UPDATE occamroute_ledgers SET format = %(format)s WHERE id = %(ledger)s;"
CLIENTS = "SELECT client, cap FROM occamroute_clients WHERE ledger = %(ledger)s;"
