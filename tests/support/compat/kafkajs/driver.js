// kafkajs behind lines of JSON: {"id", "do", ...} on standard input, {"id", "ok"} or {"id", "error"} on standard output.
'use strict'
const readline = require('readline')
const kafkajs = require('kafkajs')
const lz4 = require('lz4js')
const zstd = require('@bokuweb/zstd-wasm')

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, AssignerProtocol, logLevel } = kafkajs
const PATIENCE_MS = 30000

// kafkajs takes codecs from outside; these need no compiler.
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})
const CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }

// Its own assigner has a name that no other client knows ("RoundRobinAssigner"), so a group with others needs one of theirs.
const rangeAssigner = ({ cluster }) => ({
  name: 'range',
  version: 0,
  async assign({ members, topics }) {
    const ids = members.map(member => member.memberId).sort()
    const assignment = Object.fromEntries(ids.map(id => [id, {}]))
    for (const topic of topics) {
      const partitions = cluster.findTopicPartitionMetadata(topic).map(p => p.partitionId).sort((a, b) => a - b)
      const share = Math.floor(partitions.length / ids.length)
      const extra = partitions.length % ids.length
      ids.forEach((id, n) => {
        const start = n * share + Math.min(n, extra)
        assignment[id][topic] = partitions.slice(start, start + share + (n < extra ? 1 : 0))
      })
    }
    return ids.map(memberId => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 0, assignment: assignment[memberId] }),
    }))
  },
  protocol({ topics }) {
    return { name: 'range', metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics }) }
  },
})

let kafka, admin
const members = new Map()
const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))
const text = buffer => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString('base64'))

function toRecord(partition, message) {
  const headers = Object.entries(message.headers || {}).flatMap(([name, values]) =>
    (Array.isArray(values) ? values : [values]).map(value => [name, text(value)])
  )
  return {
    value: text(message.value),
    key: text(message.key),
    headers,
    timestamp: Number(message.timestamp),
    partition,
    offset: Number(message.offset),
  }
}

function consumer(groupId, options) {
  return kafka.consumer({ groupId, maxWaitTimeInMs: 100, allowAutoTopicCreation: false, ...options })
}

async function withProducer(transactionalId, work) {
  const options = { transactionalId, idempotent: true, maxInFlightRequests: 1, allowAutoTopicCreation: false }
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    return await work(producer)
  } finally {
    await producer.disconnect()
  }
}

const commands = {
  async start({ bootstrap }) {
    await zstd.init()
    const retry = { initialRetryTime: 50, retries: 5 }
    kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry })
    admin = kafka.admin()
    await admin.connect()
    return { version: require('kafkajs/package.json').version }
  },

  async login({ bootstrap, settings }) {
    const { tls, authority, certificate, mechanism, name, secret, token } = settings
    const options = { clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING }
    if (tls) options.ssl = { ca: [authority], ...(certificate && { cert: certificate, key: certificate }) }
    if (mechanism === 'OAUTHBEARER') {
      options.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
    } else if (mechanism) {
      options.sasl = { mechanism: mechanism.toLowerCase(), username: name, password: secret }
    }
    kafka = new Kafka({ ...options, retry: { initialRetryTime: 50, retries: 5 } })
  },

  async produce({ topic, records, codec, acks, idempotent }) {
    const producer = kafka.producer({ idempotent, allowAutoTopicCreation: false })
    await producer.connect()
    try {
      const messages = records.map(record => ({
        value: bytes(record.value),
        key: bytes(record.key),
        headers: Object.fromEntries(record.headers.map(([name, value]) => [name, bytes(value)])),
        timestamp: record.timestamp === null ? undefined : String(record.timestamp),
        partition: 0,
      }))
      await producer.send({ topic, messages, acks: acks === 'all' ? -1 : Number(acks), compression: CODECS[codec] })
    } finally {
      await producer.disconnect()
    }
  },

  async transact({ transactionalId, topic, records, commit }) {
    await withProducer(transactionalId, async producer => {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: records.map(record => ({ value: bytes(record.value), partition: 0 })) })
      await (commit ? transaction.commit() : transaction.abort())
    })
  },

  async zombie({ transactionalId, topic, first, second }) {
    return await withProducer(transactionalId, async zombie => {
      const transaction = await zombie.transaction()
      await transaction.send({ topic, messages: [{ value: bytes(first.value), partition: 0 }] })
      await withProducer(transactionalId, async producer => {
        const another = await producer.transaction()
        await another.send({ topic, messages: [{ value: bytes(second.value), partition: 0 }] })
        await another.commit()
      })
      try {
        await transaction.commit()
        return ''
      } catch (error) {
        return `${error.name}: ${error.message}`
      }
    })
  },

  async transform({ transactionalId, group, source, topic, count, commit }) {
    await withProducer(transactionalId, async producer => {
      const reader = consumer(group, { readUncommitted: false })
      await reader.connect()
      try {
        await reader.subscribe({ topics: [source], fromBeginning: true })
        const transaction = await producer.transaction()
        const taken = []
        await new Promise((resolve, reject) => {
          setTimeout(() => reject(new Error(`${taken.length} of ${count} records came`)), PATIENCE_MS).unref()
          reader.on(reader.events.CRASH, event => reject(event.payload.error))
          const eachMessage = async ({ partition, message }) => {
            if (taken.length < count) taken.push({ partition, message })
            if (taken.length >= count) resolve()
          }
          reader.run({ autoCommit: false, eachMessage }).catch(reject)
        })
        await transaction.send({ topic, messages: taken.map(({ message }) => ({ value: message.value, partition: 0 })) })
        const next = new Map()
        for (const { partition, message } of taken) next.set(partition, String(Number(message.offset) + 1))
        const partitions = [...next].map(([partition, offset]) => ({ partition, offset }))
        await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
        await (commit ? transaction.commit() : transaction.abort())
      } finally {
        await reader.disconnect()
      }
    })
  },

  // It reads in groups alone, so this is a group of one that seeks.
  async read({ group, topic, count, partition, offset, timestamp, maxBytes, committed }) {
    let start = String(offset)
    if (timestamp !== null) {
      const offsets = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
      start = offsets.find(found => found.partition === partition).offset
    }
    const reader = consumer(group, { maxBytesPerPartition: maxBytes, readUncommitted: !committed })
    const found = []
    await reader.connect()
    try {
      await reader.subscribe({ topics: [topic], fromBeginning: true })
      await new Promise((resolve, reject) => {
        setTimeout(() => reject(new Error(`${found.length} of ${count} records came`)), PATIENCE_MS).unref()
        reader.on(reader.events.CRASH, event => reject(event.payload.error))
        const eachMessage = async ({ partition: from, message }) => {
          if (from === partition && Number(message.offset) >= Number(start)) found.push(toRecord(from, message))
          if (found.length >= count) resolve()
        }
        reader.run({ autoCommit: false, eachMessage }).catch(reject)
        reader.seek({ topic, partition, offset: start })
      })
    } finally {
      await reader.disconnect()
    }
    return found.slice(0, count)
  },

  async join({ member, group, topic, assignor, sessionMs, heartbeatMs }) {
    const options = { sessionTimeout: sessionMs, heartbeatInterval: heartbeatMs, rebalanceTimeout: sessionMs }
    if (assignor) options.partitionAssigners = [rangeAssigner]
    const joined = consumer(group, options)
    const state = { consumer: joined, topic, received: [], assignment: [], error: null }
    members.set(member, state)
    joined.on(joined.events.GROUP_JOIN, ({ payload }) => {
      state.assignment = Object.entries(payload.memberAssignment).flatMap(([name, parts]) => parts.map(p => [name, p]))
    })
    joined.on(joined.events.REBALANCING, () => { state.assignment = [] })
    joined.on(joined.events.CRASH, ({ payload }) => { state.error = payload.error })
    await joined.connect()
    await joined.subscribe({ topics: [topic], fromBeginning: true })
    await joined.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => { state.received.push(toRecord(partition, message)) },
    })
  },

  async state({ member, from }) {
    const { received, assignment, error } = members.get(member)
    if (error) throw error
    return { assignment, received: received.slice(from) }
  },

  async commit({ member }) {
    const { consumer: joined, topic, received } = members.get(member)
    const next = new Map()
    for (const record of received) next.set(record.partition, record.offset + 1)
    await joined.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
  },

  async leave({ member }) {
    await members.get(member).consumer.disconnect()
    members.delete(member)
  },

  async offsets({ topic }) {
    const found = (await admin.fetchTopicOffsets(topic)).find(each => each.partition === 0)
    return [Number(found.low), Number(found.high)]
  },

  async offsetForTime({ topic, timestamp }) {
    return Number((await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)).find(each => each.partition === 0).offset)
  },

  async create({ topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    await admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }] })
  },

  async partitions({ topic }) {
    if (!(await admin.listTopics()).includes(topic)) return null
    return (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
  },

  async addPartitions({ topic, count }) {
    await admin.createPartitions({ topicPartitions: [{ topic, count }] })
  },

  async setConfig({ topic, key, value }) {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: key, value }] }
    await admin.alterConfigs({ validateOnly: false, resources: [resource] })
  },

  async topicConfig({ topic, key }) {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    const answer = await admin.describeConfigs({ includeSynonyms: false, resources })
    return answer.resources[0].configEntries.find(entry => entry.configName === key).configValue
  },

  async deleteTopic({ topic }) {
    await admin.deleteTopics({ topics: [topic] })
  },

  async groups() {
    return (await admin.listGroups()).groups.map(group => group.groupId)
  },

  async group({ group }) {
    const found = (await admin.describeGroups([group])).groups[0]
    const partitions = found.members.flatMap(member => {
      const { assignment } = AssignerProtocol.MemberAssignment.decode(member.memberAssignment)
      return Object.entries(assignment).flatMap(([topic, parts]) => parts.map(partition => [topic, partition]))
    })
    return { state: found.state, members: found.members.length, partitions }
  },

  async exit() {
    await admin.disconnect()
    setImmediate(() => process.exit(0))
  },
}

const lines = readline.createInterface({ input: process.stdin })
lines.on('close', () => process.exit(0))
lines.on('line', async line => {
  const { id, do: name, ...rest } = JSON.parse(line)
  let answer
  try {
    answer = { id, ok: (await commands[name](rest)) ?? null }
  } catch (error) {
    answer = { id, error: `${error.name}: ${error.message}` }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
})
